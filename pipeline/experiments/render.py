"""A comparison as text, Markdown or JSON."""

import json
import textwrap
from dataclasses import asdict
from typing import Any

from pipeline.core.columns import aligned
from pipeline.core.markup import code, table
from pipeline.core.messages import printable
from pipeline.evaluation.metrics import METRICS
from pipeline.experiments.comparison import Comparison, Example

_SHOWN = 3  # examples of a kind


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _score_rows(comparison: Comparison) -> list[list[str]]:
    rows = []
    for split, contrast in reversed(comparison.splits.items()):
        for name, of in contrast.difference.items():
            metric = METRICS[name]
            scores = (metric.shown(side[name], 2) for side in (contrast.a, contrast.b))
            difference, low, high = (metric.shown_difference(value, 2) for value in (of.value, of.low, of.high))
            rows.append([f"{split} {metric.title}", *scores, difference, f"{low} to {high}"])
    return rows


def _notes(comparison: Comparison) -> list[str]:
    """The lines below the scores."""
    task = comparison.task
    split, metric = task.verdict_split, METRICS[task.metrics[0]]
    judged = comparison.splits[split]
    over = " and ".join(f"{of.n} {name}" for name, of in reversed(comparison.splits.items())) + f" {task.noun}"
    if comparison.seeds is None:
        mcnemar = f"McNemar's exact test on {split}: p = {judged.mcnemar:.2g}."
        notes = [f"In percent; differences in points, with intervals over {over}.", mcnemar]
    else:
        notes = [
            "In percent, means over runs; differences in points.",
            f"Intervals over seeds and {over}.",
            f"Seeds: {comparison.seeds}.",
        ]
    if seen := judged.difference[task.metrics[0]].detectable:  # 0: identical predictions
        what = f"{metric.shown(seen)} in" if metric.kind == "error" else f"{metric.shown(seen)} points of"
        notes.append(
            f"Such a comparison sees a true difference of {what} {split} {metric.title} in four of five cases."
        )
    return notes


def _changes(comparison: Comparison) -> list[tuple[str, list[list[str]]]]:
    """Title and rows of each kind of thing in which A and B differ: parameters, environment, code."""
    return [
        (title, [[key, *map(_shown, of)] for key, of in entries.items()])
        for title, entries in (
            ("parameter", comparison.parameters),
            ("environment", comparison.environment),
            ("code or packages", comparison.code),
        )
    ]


def _changed(comparison: Comparison) -> list[tuple[str, list[Example]]]:
    """Heading and examples of each kind of changed row of the split on which the verdict rests."""
    task = comparison.task
    judged = comparison.splits[task.verdict_split]
    by = "" if comparison.seeds is None else ", by the mean probability over runs"
    return [
        (
            f"{len(examples)} {task.verdict_split} {task.noun} {heading}{by}{'; the surest:' if examples else ''}",
            examples,
        )
        for heading, examples in (
            ("fixed: wrong in A, right in B", judged.fixed),
            ("broken: right in A, wrong in B", judged.broken),
        )
    ]


def as_text(comparison: Comparison) -> str:
    """For a terminal."""
    lines = [f"A: {comparison.a}", f"B: {comparison.b}", ""]
    lines += aligned([["", "A", "B", "B - A", "95 % interval"], *_score_rows(comparison)], "right")
    lines += [*_notes(comparison), ""]
    for title, rows in _changes(comparison):
        lines += [*(aligned([[title, "A", "B"], *rows], "left") if rows else [f"{title}: none differs"]), ""]
    for heading, examples in _changed(comparison):
        lines.append(heading)
        for example in examples[:_SHOWN]:
            of_a, of_b = example.probability_a, example.probability_b
            lines.append(f"  {example.idx}  {example.label}: probability {of_a:.2f} in A, {of_b:.2f} in B")
            for text in example.texts:
                lines += textwrap.wrap(text, 96, initial_indent="    - ", subsequent_indent="      ")
        lines.append("")
    lines += [f"Verdict: {comparison.verdict}", *comparison.caveats]
    return "\n".join(map(printable, lines))


def as_markdown(comparison: Comparison) -> str:
    """For a pull request on GitHub."""
    lines = [f"**{comparison.verdict[0].upper()}{comparison.verdict[1:]}**", "", *comparison.caveats, ""]
    lines += table(
        ["", f"A: {code(comparison.a)}", f"B: {code(comparison.b)}", "B - A", "95 % interval"],
        _score_rows(comparison),
    )
    lines += ["", *_notes(comparison), ""]
    for title, rows in _changes(comparison):
        cells = [list(map(code, row)) for row in rows]
        lines += [*(table([title, "A", "B"], cells) if rows else [f"{title.capitalize()}: none differs"]), ""]
    for heading, examples in _changed(comparison):
        if not examples:
            lines += [heading, ""]
            continue
        lines += ["<details>", f"<summary>{heading}</summary>", ""]
        rows = [
            [str(example.idx), code(example.label), f"{example.probability_a:.2f}", f"{example.probability_b:.2f}",
             "<br>".join(map(code, example.texts))]
            for example in examples[:_SHOWN]
        ]  # fmt: skip
        lines += [*table(["idx", "label", "its probability in A", "in B", "text"], rows), "", "</details>", ""]
    return "\n".join(lines).rstrip()


def as_json(comparison: Comparison) -> str:
    """For machines. Scores and differences are shares, not percent."""
    return json.dumps(asdict(comparison), indent=2)
