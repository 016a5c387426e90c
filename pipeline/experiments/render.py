"""A comparison as text, Markdown or JSON."""

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from pipeline.core.messages import printable
from pipeline.core.text import aligned, code, table
from pipeline.evaluation.metrics import METRICS, Metric
from pipeline.evaluation.signature import as_line
from pipeline.experiments.comparison import Comparison, Contrast, Example
from pipeline.experiments.gate import Decision

_SHOWN = 3  # examples of a kind


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def in_units(metrics: Iterable[Metric], more: str = "") -> str:
    """The sentence that says in which units scores are. more: what follows "In percent"."""
    return (
        f"In percent{more}{', but errors as they are' if any(metric.scale == 'error' for metric in metrics) else ''}."
    )


def _splits(comparison: Comparison) -> list[tuple[str, Contrast]]:
    """That on which the verdict rests comes first."""
    return sorted(comparison.splits.items(), key=lambda split: split[0] != comparison.task.verdict_split)


def score_rows(comparison: Comparison) -> list[list[str]]:
    """Of each split and metric: its name, the score of A, that of B, the difference and its interval."""
    rows = []
    for split, contrast in _splits(comparison):
        for name, of in contrast.difference.items():
            metric = METRICS[name]
            scores = (metric.format(side[name], 2) for side in (contrast.a, contrast.b))
            difference, low, high = (metric.format_difference(value, 2) for value in (of.value, of.low, of.high))
            rows.append([f"{split} {metric.title}", *scores, difference, f"{low} to {high}"])
    return rows


def _notes(comparison: Comparison) -> list[str]:
    """The lines below the scores."""
    task = comparison.task
    split, metric = task.verdict_split, METRICS[task.metrics[0]]
    judged = comparison.splits[split]
    over = " and ".join(f"{of.n} {name}" for name, of in _splits(comparison)) + f" {task.noun}"
    metrics = [METRICS[name] for name in task.metrics]
    if comparison.seeds is None:
        notes = [in_units(metrics, f"; differences in points, with intervals over {over}")]
    else:
        notes = [
            in_units(metrics, ", means over runs; differences in points"),
            f"Intervals over seeds and {over}.",
            f"Seeds: {comparison.seeds}.",
        ]
    difference = judged.difference[task.metrics[0]]
    if seen := difference.detectable:  # 0: identical predictions
        # Few seeds say little about the variance between seeds: tests/test_statistics.py
        power = {2: 60, 3: 70, 4: 70}.get(difference.runs, 80)
        gap = f"{metric.format(seen)} in" if metric.scale == "error" else f"{metric.format(seen)} points of"
        notes.append(f"A true difference of {gap} {split} {metric.title} is detected about {power}% of the time.")
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
    judged, regression = comparison.splits[task.verdict_split], task.problem_type == "regression"
    mean, first = ("prediction", "most") if regression else ("probability", "surest")
    by = "" if comparison.seeds is None else f", by the mean {mean} over runs"
    kinds = ("closer to the label in B", "further from the label in B")
    if not regression:
        kinds = ("fixed: wrong in A, right in B", "broken: right in A, wrong in B")
    return [
        (
            f"{len(examples)} {task.verdict_split} {task.noun} {kind}{by}{f'; the {first}:' if examples else ''}",
            examples,
        )
        for kind, examples in zip(kinds, (judged.fixed, judged.broken), strict=True)
    ]


def _shown_as(comparison: Comparison) -> str:
    """What `Example.a` and `.b` are."""
    return "predicted" if comparison.task.problem_type == "regression" else "probability"


def as_text(comparison: Comparison) -> str:
    """For a terminal."""
    lines = []
    for side, name, of in zip("AB", (comparison.a, comparison.b), comparison.signatures, strict=True):
        lines += [f"{side}: {name}", f"   {as_line(of)}"]
    lines.append("")
    lines += aligned([["", "A", "B", "B - A", "95% interval"], *score_rows(comparison)], "right")
    lines += [*_notes(comparison), ""]
    for title, rows in _changes(comparison):
        lines += [*(aligned([[title, "A", "B"], *rows], "left") if rows else [f"{title}: none differs"]), ""]
    for heading, examples in _changed(comparison):
        lines.append(heading)
        for example in examples[:_SHOWN]:
            shown = f"{_shown_as(comparison)} {example.a:.2f} in A, {example.b:.2f} in B"
            lines.append(f"  {example.idx}  {example.label}: {shown}")
            for text in example.texts:
                lines += textwrap.wrap(text, 96, initial_indent="    - ", subsequent_indent="      ")
        lines.append("")
    lines += [f"Verdict: {comparison.verdict}", *comparison.caveats]
    return "\n".join(map(printable, lines))


def as_markdown(comparison: Comparison) -> str:
    """For a pull request on GitHub."""
    lines = [f"**{comparison.verdict[0].upper()}{comparison.verdict[1:]}**", "", *comparison.caveats, ""]
    lines += table(
        ["", f"A: {code(comparison.a)}", f"B: {code(comparison.b)}", "B - A", "95% interval"],
        score_rows(comparison),
    )
    lines += ["", *_notes(comparison), ""]
    lines += [f"{side}: {code(as_line(of))}\n" for side, of in zip("AB", comparison.signatures, strict=True)]
    for title, rows in _changes(comparison):
        cells = [list(map(code, row)) for row in rows]
        lines += [*(table([title, "A", "B"], cells) if rows else [f"{title.capitalize()}: none differs"]), ""]
    for heading, examples in _changed(comparison):
        if not examples:
            lines += [heading, ""]
            continue
        lines += ["<details>", f"<summary>{heading}</summary>", ""]
        rows = [
            [str(example.idx), code(example.label), f"{example.a:.2f}", f"{example.b:.2f}",
             "<br>".join(map(code, example.texts))]
            for example in examples[:_SHOWN]
        ]  # fmt: skip
        lines += [*table(["idx", "label", f"{_shown_as(comparison)} in A", "in B", "text"], rows), "", "</details>", ""]
    return "\n".join(lines).rstrip()


def as_json(comparison: Comparison) -> str:
    """For machines. Scores and differences are shares, not percent."""
    content = asdict(comparison)
    for split, contrast in comparison.splits.items():
        content["splits"][split]["difference"] = {
            name: {"value": of.value, "low": of.low, "high": of.high, "detectable": of.detectable}
            for name, of in contrast.difference.items()
        }
    return json.dumps(content, indent=2)


def as_table(comparisons: Sequence[Comparison], decisions: Sequence[Decision]) -> str:
    """Several candidates next to one baseline, for a terminal."""
    first = comparisons[0]
    split, name = first.task.verdict_split, first.task.metrics[0]
    metric, rows = METRICS[name], [["", "", "B - A", "95% interval", "detectable", "gate"]]
    signatures = {"A": first.signatures[0]} | {comparison.b: comparison.signatures[1] for comparison in comparisons}
    rows.append([f"A: {first.a}", metric.format(first.splits[split].a[name], 2), "", "", "", ""])
    for comparison, decision in zip(comparisons, decisions, strict=True):
        contrast = comparison.splits[split]
        result = contrast.difference[name]
        value, low, high = (metric.format_difference(number, 2) for number in (result.value, result.low, result.high))
        score, seen = metric.format(contrast.b[name], 2), metric.format(result.detectable, 2)
        rows.append([comparison.b, score, value, f"{low} to {high}", seen, decision.outcome])
    return "\n".join(
        [
            f"{split} {metric.title}, {in_units([metric]).lower()}",
            "",
            *aligned(rows, "right"),
            *(f"{name}: {as_line(entries)}" for name, entries in signatures.items()),
            "",
            "Detectable: the true difference that is detected about 80% of the time"
            " (60% with 2 seeds, 70% with 3 or 4).",
            f"Each candidate is judged by itself: the best of {len(comparisons)} may look better by chance.",
            *dict.fromkeys(caveat for comparison in comparisons for caveat in comparison.caveats),
        ]
    )


def as_gate(comparison: Comparison, decision: Decision) -> str:
    """The line on which a script's exit status rests."""
    said = {"passes": "The gate passes", "undecided": "The gate is undecided about", "fails": "The gate fails"}
    line = "; ".join([f"{said[decision.outcome]} {comparison.b}: {decision.reason}", *comparison.degenerate])
    return line if comparison.seeds else f"{line}. This is about these two models, not about other seeds."
