"""Format scores for tables, and a comparison as text, Markdown or JSON."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pipeline.core.messages import printable
from pipeline.core.text import aligned, code, escaped, format_number, table
from pipeline.evaluation.metrics import METRICS
from pipeline.evaluation.signature import as_line
from pipeline.experiments.comparison import ChangedExample, Comparison, SplitComparison
from pipeline.experiments.gate import Decision

_EXAMPLES = 3  # of the fixed examples, and of the broken ones
SCORE_UNITS = "Scores are in percent. Errors such as RMSE have their own units."
_DETECTABLE = "Detectable: a true difference of this size is detected about 80% of the time. This is a rough estimate."
UNITS = "Scores are in percent, differences in percentage points. Errors such as RMSE have their own units."


def as_text(comparison: Comparison) -> str:
    """Format a comparison for a terminal."""
    lines = []
    for side, name, signature in zip("AB", (comparison.a, comparison.b), comparison.signatures, strict=True):
        lines += [f"{side}: {name}", f"   {as_line(signature)}"]
    lines += ["", *aligned([["", "A", "B", "B - A", "95% confidence interval"], *_score_rows(comparison)], "right")]
    lines += [*_notes(comparison), ""]
    for title, rows in _change_rows(comparison):
        lines += [*(aligned([[title, "A", "B"], *rows], "left") if rows else [f"{title}: identical"]), ""]
    for heading, examples in _examples_by_heading(comparison).items():
        lines.append(heading)
        for example in examples:
            a, b = _format_value(comparison, example.a), _format_value(comparison, example.b)
            values = f"{_value_name(comparison)} {a} in A, {b} in B"
            lines.append(f"  {example.idx}  {example.label}: {values}")
            for text in example.texts:
                lines += textwrap.wrap(text, 96, initial_indent="    - ", subsequent_indent="      ")
        lines.append("")
    lines += [f"Verdict: {comparison.verdict}", *comparison.caveats]
    return "\n".join(map(printable, lines))


def as_markdown(comparison: Comparison) -> str:
    """Format a comparison for a pull request on GitHub."""
    lines = [f"**{comparison.verdict[0].upper()}{comparison.verdict[1:]}**", "", *map(escaped, comparison.caveats), ""]
    header = ["", f"A: {code(comparison.a)}", f"B: {code(comparison.b)}", "B - A", "95% confidence interval"]
    lines += [*table(header, _score_rows(comparison)), "", *_notes(comparison), ""]
    lines += [f"{side}: {code(as_line(entry))}\n" for side, entry in zip("AB", comparison.signatures, strict=True)]
    for title, rows in _change_rows(comparison):
        cells = [[code(cell) for cell in row] for row in rows]
        lines += [*(table([title, "A", "B"], cells) if rows else [f"{title.capitalize()}: identical"]), ""]
    for heading, examples in _examples_by_heading(comparison).items():
        if not examples:
            lines += [heading, ""]
            continue
        rows = [
            [f"{example.idx}", code(example.label),
             _format_value(comparison, example.a), _format_value(comparison, example.b),
             "<br>".join(code(text) for text in example.texts)]
            for example in examples
        ]  # fmt: skip
        header = ["idx", "label", *(f"{_value_name(comparison)} in {side}" for side in "AB"), "text"]
        lines += ["<details>", f"<summary>{heading}</summary>", "", *table(header, rows), "", "</details>", ""]
    return "\n".join(lines).rstrip()


def as_json(comparison: Comparison) -> str:
    """Format a comparison for machines. Scores and differences are fractions, not percentages."""
    content = asdict(comparison)
    content |= content.pop("changes")
    del content["interval_caveats"]  # They are among the caveats.
    content |= {"better": comparison.better_side, "verdict": comparison.verdict, "caveats": comparison.caveats}
    keys = ("value", "low", "high") if comparison.detectable is None else ("value", "low", "high", "detectable")
    for split, result in comparison.splits.items():
        content["splits"][split]["difference"] = {
            name: {key: getattr(difference, key) for key in keys} for name, difference in result.difference.items()
        }
    return json.dumps(content, indent=2)


def as_table(comparisons: Sequence[Comparison], decisions: Sequence[Decision]) -> str:
    """Format several candidates, each compared with the same A, for a terminal."""
    first = comparisons[0]
    split, name, metric = first.verdict_split, first.task.metrics[0], first.metric
    rows = [["", "", "B - A", "95% confidence interval", "detectable", "gate"]]
    rows.append([f"A: {first.a}", metric.format(first.verdict_comparison.a[name], 2), "", "", "", ""])
    for comparison, decision in zip(comparisons, decisions, strict=True):
        _, score, *difference = _score_cells(comparison.verdict_comparison, name)
        detectable = "" if comparison.detectable is None else metric.format(comparison.detectable, 2)
        rows.append([comparison.b, score, *difference, detectable, decision.outcome])
    candidates: dict[str, list[str]] = {}  # keyed by caveat
    for comparison in comparisons:
        for caveat in comparison.caveats:
            candidates.setdefault(caveat, []).append(comparison.b)
    signatures = {"A": first.signatures[0]} | {comparison.b: comparison.signatures[1] for comparison in comparisons}
    lines = [
        f"Candidates (B) compared with A by {split} {metric.title}.",
        UNITS,
        "",
        *aligned(rows, "right"),
        *(f"{side}: {as_line(signature)}" for side, signature in signatures.items()),
        "",
        *([_DETECTABLE] if any(comparison.detectable is not None for comparison in comparisons) else []),
        f"Each candidate is judged on its own, so the best of {len(comparisons)} may look better by chance.",
        # A warning names its side itself.
        *(
            caveat if caveat.startswith("Warning:") else f"{', '.join(names)}: {caveat}"
            for caveat, names in candidates.items()
        ),
    ]
    return "\n".join(map(printable, lines))


def as_gate(comparison: Comparison, decision: Decision) -> str:
    """Return the line that explains the exit status to people who read the output of a script."""
    outcome = {"passes": "The gate passes", "undecided": "The gate is undecided about", "fails": "The gate fails"}
    line = "; ".join([f"{outcome[decision.outcome]} {comparison.b}: {decision.reason}", *comparison.degenerate])
    return f"{line}. This holds for these two models only, and not for other seeds." if comparison.single_runs else line


def _score_cells(split: SplitComparison, name: str) -> list[str]:
    """Return the score of A, the score of B, the difference, and its interval."""
    metric, difference = METRICS[name], split.difference[name]
    low, high = metric.format_difference(difference.low, 2), metric.format_difference(difference.high, 2)
    scores = [metric.format(split.a[name], 2), metric.format(split.b[name], 2)]
    return [*scores, metric.format_difference(difference.value, 2), f"{low} to {high}"]


def _score_rows(comparison: Comparison) -> list[list[str]]:
    return [
        [f"{name} {METRICS[metric].title}", *_score_cells(split, metric)]
        for name, split in comparison.splits.items()
        for metric in comparison.task.metrics
    ]


def _notes(comparison: Comparison) -> list[str]:
    """Return the lines to show below the scores."""
    counts = " and ".join(f"{split.n:,} {name}" for name, split in comparison.splits.items())
    examples = f"{counts} {comparison.task.noun}"
    notes = [UNITS]
    if comparison.single_runs:
        notes.append(f"The intervals reflect the choice of examples ({examples}), not of seeds.")
    elif comparison.folds:
        notes += [
            f"The intervals reflect the choice of examples ({examples}), for training and for scoring.",
            f"Both sides were trained on the same {comparison.folds} folds. Within a side, all folds have the same "
            "train.seed. Each score is the mean over the folds.",
        ]
    else:
        notes += [
            f"The intervals reflect the choice of seeds and of examples ({examples}).",
            f"Seeds: {comparison.seeds}. Each score is the mean over its seeds.",
        ]
    if comparison.detectable is not None:
        size = f"{comparison.metric.format(comparison.detectable)} {comparison.score_suffix}"
        notes.append(f"A true difference of roughly {size} is detected about 80% of the time.")
    return notes


def _change_rows(comparison: Comparison) -> list[tuple[str, list[list[str]]]]:
    """Return a title for the parameters, the environment and the code, each with a row for every entry that differs."""

    def cell(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    return [
        (title, [[key, cell(left), cell(right)] for key, (left, right) in changes.items()])
        for title, changes in comparison.changes.items()
    ]


def _examples_by_heading(comparison: Comparison) -> dict[str, list[ChangedExample]]:
    """Return headings, each with the first fixed or broken examples of the split that the verdict is about."""
    task = comparison.task
    split = comparison.verdict_comparison
    if task.problem_type == "regression":
        quantity = "prediction"
        order = "The largest changes"
        groups = {"Closer to the label in B": split.fixed, "Farther from the label in B": split.broken}
    else:
        quantity = "probability"
        order = "The most confident ones in B"
        groups = {"Fixed (wrong in A, right in B)": split.fixed, "Broken (right in A, wrong in B)": split.broken}
    by_heading = {}
    for change, examples in groups.items():
        heading = f"{change}: {len(examples):,} {comparison.verdict_split} {task.noun}"
        if comparison.seeds is not None:
            heading += f", by the mean {quantity} over runs"
        if examples:
            heading += f". {order}:"
        by_heading[heading] = examples[:_EXAMPLES]
    return by_heading


def _format_value(comparison: Comparison, value: float) -> str:
    """Format a probability or the prediction of a regression."""
    return format_number(value) if comparison.task.problem_type == "regression" else f"{value:.2f}"


def _value_name(comparison: Comparison) -> str:
    """Return the name of the values `ChangedExample.a` and `ChangedExample.b`."""
    return "predicted" if comparison.task.problem_type == "regression" else "probability"
