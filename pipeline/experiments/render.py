"""A comparison as text, Markdown or JSON."""

import json
import textwrap
from dataclasses import asdict
from typing import Any

from pipeline.core.columns import aligned
from pipeline.core.markup import code, table
from pipeline.core.messages import printable
from pipeline.core.paths import SCORED
from pipeline.core.percent import percent, points
from pipeline.evaluation.uncertainty import SCORES
from pipeline.experiments.comparison import Comparison, Example

_SHOWN = 3  # examples of a kind


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _score_rows(comparison: Comparison) -> list[list[str]]:
    rows = []
    for split in reversed(SCORED):
        contrast = comparison.splits[split]
        for name, of in contrast.difference.items():
            scores = (percent(side[name], 2) for side in (contrast.a, contrast.b))
            interval = f"{points(of.low, 2)} to {points(of.high, 2)}"
            rows.append([f"{split} {SCORES[name]}", *scores, points(of.value, 2), interval])
    return rows


def _notes(comparison: Comparison) -> list[str]:
    """The lines below the scores."""
    test, validation = comparison.splits["test"], comparison.splits["validation"]
    over = f"{test.n} test and {validation.n} validation pairs"
    if comparison.seeds is None:
        mcnemar = f"McNemar's exact test on test: p = {test.mcnemar:.2g}."
        notes = [f"In percent; differences in points, with intervals over {over}.", mcnemar]
    else:
        notes = [
            "In percent, means over runs; differences in points.",
            f"Intervals over seeds and {over}.",
            f"Seeds: {comparison.seeds}.",
        ]
    if seen := test.difference["accuracy"].detectable:  # 0: identical predictions
        sees = f"sees a true difference of {percent(seen)} points of test accuracy"
        notes.append(f"Such a comparison {sees} in four of five cases.")
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
    """Heading and examples of each kind of changed test pair."""
    test = comparison.splits["test"]
    by = "" if comparison.seeds is None else ", by the mean probability over runs"
    return [
        (f"{len(examples)} test pairs {heading}{by}{'; the surest:' if examples else ''}", examples)
        for heading, examples in (
            ("fixed: wrong in A, right in B", test.fixed),
            ("broken: right in A, wrong in B", test.broken),
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
            for sentence in (example.sentence1, example.sentence2):
                lines += textwrap.wrap(sentence, 96, initial_indent="    - ", subsequent_indent="      ")
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
             f"{code(example.sentence1)}<br>{code(example.sentence2)}"]
            for example in examples[:_SHOWN]
        ]  # fmt: skip
        lines += [*table(["idx", "label", "its probability in A", "in B", "pair"], rows), "", "</details>", ""]
    return "\n".join(lines).rstrip()


def as_json(comparison: Comparison) -> str:
    """For machines. Scores and differences are shares, not percent."""
    return json.dumps(asdict(comparison), indent=2)
