"""The text of a comparison: its notes, and its formats for a terminal, a pull request and scripts."""

import pandas as pd

from pipeline.core.messages import printable
from pipeline.core.text import escaped, format_number, listing, shortened
from pipeline.evaluation.intervals import MIN_CHANGED, caveats
from pipeline.evaluation.metrics import METRICS
from pipeline.experiments.comparison import LEAKED, MIN_SEEDS, SCORE_UNITS, Comparison
from pipeline.experiments.runs import SIMPLE_MODELS, WORKSPACE, outdated_stages


def notes(result: Comparison) -> list[str]:
    """Return sentences that say how to read the verdict, and warnings of results that are not what they seem to be."""
    lines, a, b = [], result.a, result.b
    examples = f"{result.split} {a.task.noun}"
    if result.changed >= MIN_CHANGED and a.kind == "single run" and "model" not in result.differences:
        advice = f"Compare seed groups: python -m pipeline.seeds --n {MIN_SEEDS} -S ..."
        lines.append(f"Two single runs say nothing about other seeds. {advice}")
    # The intervals of folds are measured between the folds, which contain whole groups.
    split_type = None if a.folds else a.runs[0].origin.get("data.split.type")
    lines += caveats(a.task.metrics[:1], a.task, result.split, a.runs[0].predictions[result.split].labels, split_type)
    if {a.name, b.name} & {WORKSPACE, *SIMPLE_MODELS} and (stages := outdated_stages()):
        lines.append(f'Warning: the results in the workspace lack changes to {listing(stages)}. Run "dvc repro".')
    lines += a.warnings(result.split) + b.warnings(result.split)
    before, after = result.differences.get(LEAKED, (0, 0))
    if after > before:
        lines.append(f"Warning: train has {after:,} {examples} in B ({before:,} in A), so B may score too high.")
    return lines


def as_text(result: Comparison) -> str:
    """Format a comparison for a terminal."""
    lines: list[str] = []
    for title, table in _tables(result).items():
        lines += [title, *table.to_string().split("\n"), ""]
    return "\n".join(map(printable, [*lines, *_example_lines(result), f"Verdict: {result.verdict}", *notes(result)]))


def as_markdown(result: Comparison) -> str:
    """Format a comparison for a pull request on GitHub."""
    parts = [f"**{result.verdict[0].upper()}{result.verdict[1:]}**", *map(escaped, notes(result))]
    for title, table in _tables(result).items():
        table = table.map(escaped).rename(index=escaped, columns=escaped)
        parts += [title, table.to_markdown(disable_numparse=True)]
    return "\n\n".join([*parts, "\n".join(map(escaped, _example_lines(result)))])


def as_json(result: Comparison) -> str:
    """Format a comparison for scripts, with all fixed and broken examples. Scores are fractions, not percentages."""
    content = {
        "a": result.a.name, "b": result.b.name, "verdict": result.verdict, "better": result.better,
        "notes": notes(result), "scores": result.scores.to_dict("records"), "changes": result.differences,
        "changed": result.changed, "fixed": result.fixed.to_dict("records"), "broken": result.broken.to_dict("records"),
    }  # fmt: skip
    # pandas writes NaN and Infinity, which JSON does not have, as null.
    return str(pd.Series(content).to_json(indent=2, double_precision=15, default_handler=str))


def _tables(result: Comparison) -> dict[str, pd.DataFrame]:
    """Return the scores, and what differs between A and B, keyed by their titles. All cells are strings."""
    scores = {}
    for score in result.scores.itertuples():
        metric = METRICS[score.metric]
        value, low, high = (metric.format_difference(number, 2) for number in (score.value, score.low, score.high))
        row = {"A": metric.format(score.a, 2), "B": metric.format(score.b, 2), "B - A": value}
        row["95% interval"] = f"{low} to {high}"
        if score.detectable is not None:
            row["detected in 80%"] = metric.format(score.detectable, 2)
        scores[f"{score.split} {metric.title}"] = row
    a, b = result.a, result.b
    sides = {"name": (a.name, b.name), "runs": (len(a.folds or a.runs), len(b.folds or b.runs)), **result.differences}
    cells = {key: [shortened(str(value), 60) for value in values] for key, values in sides.items()}
    return {
        SCORE_UNITS: pd.DataFrame.from_dict(scores, orient="index"),
        "A and B, and what differs:": pd.DataFrame.from_dict(cells, orient="index", columns=["A", "B"]),
    }


def _example_lines(result: Comparison) -> list[str]:
    """Describe three of the fixed and three of the broken examples. In Markdown, the lines are lists."""
    task, total = result.a.task, len(result.a.runs[0].predictions[result.split])
    quantity = "prediction" if task.is_regression else "probability of the label"
    show = format_number if task.is_regression else "{:.2f}".format
    lines = []
    for title, examples in {"Better in B": result.fixed, "Worse in B": result.broken}.items():
        lines.append(f"{title}: {len(examples):,} of {total:,} {result.split} {task.noun}, with the {quantity}")
        for row in examples.head(3).itertuples():
            lines.append(f"- {task.singular_noun} {row.idx}, label {row.label}: {show(row.a)} in A, {show(row.b)} in B")
            texts = zip(task.text_columns, row.texts, strict=True)
            lines += [f"  - {column}: {shortened(' '.join(text.split()), 500)}" for column, text in texts]
        lines.append("")
    return lines
