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
from pipeline.experiments.comparison import Comparison, Contrast, Example, paired_test
from pipeline.experiments.gate import MOST_RUNS, Decision

_SHOWN = 3  # examples of a kind


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def in_units(metrics: Iterable[Metric], more: str = "") -> str:
    """The sentence that says in which units scores are. more: what follows "In percent"."""
    return f"In percent{more}{', but errors as they are' if any(of.kind == 'error' for of in metrics) else ''}."


def _splits(comparison: Comparison) -> list[tuple[str, Contrast]]:
    """That on which the verdict rests comes first."""
    return sorted(comparison.splits.items(), key=lambda split: split[0] != comparison.task.verdict_split)


def score_rows(comparison: Comparison) -> list[list[str]]:
    """Of each split and metric: its name, the score of A, that of B, the difference and its interval."""
    rows = []
    for split, contrast in _splits(comparison):
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
    over = " and ".join(f"{of.n} {name}" for name, of in _splits(comparison)) + f" {task.noun}"
    metrics = [METRICS[name] for name in task.metrics]
    if judged.p is not None:
        notes = [
            in_units(metrics, f"; differences in points, with intervals over {over}"),
            f"{paired_test(task)[0].upper()}{paired_test(task)[1:]} on {split}: p = {judged.p:.2g}.",
        ]
    else:
        notes = [
            in_units(metrics, ", means over runs; differences in points"),
            f"Intervals over seeds and {over}.",
            f"Seeds: {comparison.seeds}.",
        ]
    difference = judged.difference[task.metrics[0]]
    if seen := difference.detectable:  # 0: identical predictions
        # Few seeds say little about the variance between seeds: tests/test_statistics.py
        cases = {2: "six of ten", 3: "seven of ten", 4: "seven of ten"}.get(difference.runs, "four of five")
        what = f"{metric.shown(seen)} in" if metric.kind == "error" else f"{metric.shown(seen)} points of"
        notes.append(
            f"Such a comparison sees a true difference of {what} {split} {metric.title} in about {cases} cases."
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
    lines += aligned([["", "A", "B", "B - A", "95 % interval"], *score_rows(comparison)], "right")
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
        ["", f"A: {code(comparison.a)}", f"B: {code(comparison.b)}", "B - A", "95 % interval"],
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
    """Several candidates beside one baseline, for a terminal."""
    first = comparisons[0]
    split, name = first.task.verdict_split, first.task.metrics[0]
    metric, rows = METRICS[name], [["", "", "B - A", "95 % interval", "detectable", "p", ""]]
    signatures = {"A": first.signatures[0]} | {of.b: of.signatures[1] for of in comparisons}
    rows.append([f"A: {first.a}", metric.shown(first.splits[split].a[name], 2), "", "", "", "", ""])
    for comparison, decision in zip(comparisons, decisions, strict=True):
        contrast = comparison.splits[split]
        of = contrast.difference[name]
        difference, low, high = (metric.shown_difference(value, 2) for value in (of.value, of.low, of.high))
        score = metric.shown(contrast.b[name], 2)
        rows.append(
            [comparison.b, score, difference, f"{low} to {high}", metric.shown(of.detectable, 2), f"{decision.p:.2g}",
             decision.outcome]
        )  # fmt: skip
    return "\n".join(
        [
            f"{split} {metric.title}, {in_units([metric]).lower()}",
            "",
            *aligned(rows, "right"),
            *(f"{name}: {as_line(of)}" for name, of in signatures.items()),
            "",
            "Detectable: the true difference that is seen in about four of five cases"
            " (six of ten with 2 seeds, seven of ten with 3 or 4).",
            f"p under no difference, adjusted for {len(comparisons)} candidates (Holm); intervals are not adjusted.",
            *dict.fromkeys(caveat for comparison in comparisons for caveat in comparison.caveats),
        ]
    )


def as_gate(comparison: Comparison, decision: Decision, margin: float) -> str:
    """The line on which a script's exit status rests."""
    by = f"{margin:g}{'' if METRICS[comparison.task.metrics[0]].kind == 'error' else ' points'}"
    loss = f"p = {decision.p_worse:.2g} under a loss by {by}"
    said = {
        "better": f"passes: {comparison.b} is better, p = {decision.p:.2g} under no difference",
        "equivalent": f"passes: {comparison.b} is equivalent within {by}, {loss}",
        "not worse": f"passes: {comparison.b} is not worse by {by} or more, {loss}",
        "worse": f"fails: {comparison.b} is worse, p = {decision.p:.2g} under no difference",
        "undecided": f"undecided: {comparison.b} may be worse by {by} or more, {loss}",
    }[decision.outcome]
    said = "; ".join([said, *comparison.degenerate])
    if decision.outcome == "undecided" and decision.ruled_out is not None:
        task = comparison.task
        n, metric = comparison.splits[task.verdict_split].n, METRICS[task.metrics[0]]
        loss = f"{decision.ruled_out:.2g}" if metric.kind == "error" else f"{100 * decision.ruled_out:.2f} points"
        return (
            f"Gate {said}; both sides give the same answers on all {n} {task.verdict_split} {task.noun}, so more seeds "
            f"would not settle it: so many {task.noun} only rule out a loss by more than {loss}"
        )
    if comparison.seeds is None:
        return f"Gate {said}; this is about these two models, not about other seeds"
    if decision.outcome != "undecided":
        return f"Gate {said}"
    if decision.runs is None:
        return f"Gate {said}; even {MOST_RUNS} seeds a side would not settle it on these rows, if it is as found"
    return f"Gate {said}; {decision.runs} seeds a side would settle it in four of five cases, if it is as found"
