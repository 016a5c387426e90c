"""Correct labels with the verdicts of a person: the rows of suspects.csv whose column "verdict" is filled in."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.core.messages import UserError, log
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import closest_match, listing, literal
from pipeline.sources.corpus import Corpus
from pipeline.sources.folds import labeled_rows
from pipeline.sources.tables import read_bytes, read_table

NO_LABELS = "[]"  # the verdict for a row that has none of several labels


def correct(corpus: Corpus, file: Path) -> Corpus:
    """Return the corpus with the verdicts of a file as labels. Each row stays in its split.

    Raises:
        UserError: The file cannot be read, a verdict is not a label, a row has two verdicts, or its text is not the
            text in the data.
    """
    verdicts = _read_verdicts(file, corpus.task)
    if verdicts.empty:
        return corpus
    rows = labeled_rows(corpus)
    positions = {str(idx): position for position, idx in enumerate(rows["idx"])}
    labels = rows["label"].tolist()
    corrected: set[int] = set()
    for place, verdict in verdicts.iterrows():
        position = positions.get(verdict["idx"].removesuffix(".0"))  # A spreadsheet may have written 1 as 1.0.
        if position is None or _words(verdict, corpus.task) != _words(rows.iloc[position], corpus.task):
            raise UserError(f"{place}: this is not the text of idx {verdict['idx']} in your data. Correct the row.")
        if position in corrected:
            raise UserError(f"{place}: idx {verdict['idx']} has two verdicts. Keep one.")
        corrected.add(position)
        labels[position] = _parse(str(place), verdict["verdict"], corpus.task)
    log.info("%s: %d verdicts applied", file, len(corrected))
    by_place = pd.Series(labels, rows.index, dtype=rows["label"].dtype)
    splits = {split: corpus.splits[split].assign(label=by_place) for split in (TRAIN, "validation")}
    return replace(corpus, splits={**corpus.splits, **splits})


def _read_verdicts(file: Path, task: Task) -> pd.DataFrame:
    """Return the rows that have a verdict, as texts."""
    table = read_table(file, read_bytes(file))
    if table.rows.empty:  # like the committed file, which has only a header
        return table.rows
    columns = ["verdict", "idx", *task.text_columns]
    table.require(columns)
    rows = pd.DataFrame({name: table.texts(name).str.strip() for name in columns})
    return rows[rows["verdict"] != ""]


def _words(row: pd.Series, task: Task) -> list[str]:
    return [word for name in task.text_columns for word in row[name].split()]  # A spreadsheet may change line breaks.


def _parse(place: str, verdict: str, task: Task) -> Any:
    """Return a verdict as a label: a number, the number of a class, or 0 and 1 for each label."""
    if task.problem_type == "regression":
        try:
            return float(verdict)
        except ValueError:
            raise UserError(f"{place}: the verdict {literal(verdict)} is not a number.") from None
    by_spelling = {name.lower(): name for name in task.labels} | {name: name for name in task.labels}
    names = [verdict] if task.problem_type == "single_label_classification" else verdict.split("|")
    labels = []
    for name in () if verdict == NO_LABELS else map(str.strip, names):
        # A spreadsheet may have written true as TRUE.
        if (label := by_spelling.get(name, by_spelling.get(name.lower()))) is None:
            match = closest_match(name, task.labels)
            hint = f' Did you mean "{match}"?' if match else ""
            raise UserError(f"{place}: {literal(name)} is not one of the labels {listing(task.labels)}.{hint}")
        labels.append(label)
    if task.problem_type == "single_label_classification":
        return task.labels.index(labels[0])
    return [int(label in labels) for label in task.labels]
