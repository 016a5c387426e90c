"""Correct labels with the verdicts of a person: the rows of suspects.csv whose column "verdict" is filled in."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.core.messages import UserError, log
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import closest_match, listing, literal
from pipeline.sources.corpus import Corpus, rows_sha256
from pipeline.sources.folds import labeled_rows
from pipeline.sources.tables import read_bytes, read_table

NO_LABELS = "[]"  # the verdict for a row that has none of several labels


def correct(corpus: Corpus, file: Path) -> Corpus:
    """Return the corpus with the verdicts of a file as labels of train and validation. Each row stays in its split.

    Raises:
        UserError: The file cannot be read, a verdict is not a label, a row has two verdicts, or its text is not the
            text in the data.
    """
    verdicts = read_verdicts(file, corpus.task.text_columns)
    if verdicts.empty:
        return corpus
    rows = labeled_rows(corpus)
    positions = {str(idx): position for position, idx in enumerate(rows["idx"])}
    labels = rows["label"].tolist()
    places: dict[int, str] = {}  # where the verdict about a row is
    for place, verdict in zip(verdicts.index, verdicts.to_dict("records"), strict=True):
        position = positions.get(verdict["idx"].removesuffix(".0"))  # Other programs may write 1 as 1.0.
        if position is None or _words(verdict, corpus.task) != _words(rows.iloc[position], corpus.task):
            raise UserError(
                f"{place}: train and validation have no row with the idx {literal(verdict['idx'])} and this text. Copy "
                "the text from your data, or delete the row."
            )
        if position in places:
            raise UserError(f"{place}: {places[position]} has a verdict about the same row. Keep one.")
        places[position] = place
        labels[position] = _parse(place, verdict["verdict"], corpus.task)
    log.info("%s: %s verdicts applied", file, f"{len(verdicts):,}")
    corrected = pd.Series(labels, rows.index, dtype=rows["label"].dtype)
    splits = {split: corpus.splits[split].assign(label=corrected) for split in (TRAIN, "validation")}
    origin = corpus.origin | {"corrections": rows_sha256(verdicts)}
    return replace(corpus, splits=corpus.splits | splits, origin=origin)


def read_verdicts(file: Path, text_columns: Sequence[str]) -> pd.DataFrame:
    """Return "verdict", "idx" and the text columns of the rows that have a verdict, as texts."""
    table = read_table(file, read_bytes(file))
    # The committed file has a header and no rows. It cannot know the text columns.
    columns = ["verdict", "idx", *([] if table.rows.empty else text_columns)]
    table.require(columns)
    rows = pd.DataFrame({name: table.texts(name).str.strip() for name in columns})
    return rows[rows["verdict"] != ""]


def _words(row: Any, task: Task) -> list[str]:
    return [word for name in task.text_columns for word in row[name].split()]  # A spreadsheet may change line breaks.


def _parse(place: str, verdict: str, task: Task) -> Any:
    """Return a verdict as a label: a number, the number of a class, or 0 and 1 for each label."""
    if task.problem_type == "regression":
        number = pd.to_numeric(verdict, errors="coerce")
        if not np.isfinite(number):
            raise UserError(f"{place}: the verdict {literal(verdict)} is not a number. Correct it.")
        return float(number)
    if task.problem_type == "single_label_classification":
        return _class_number(place, verdict, task.labels)
    names = [] if verdict == NO_LABELS else verdict.split("|")
    numbers = [_class_number(place, name.strip(), task.labels) for name in names]
    return [int(number in numbers) for number in range(len(task.labels))]


def _class_number(place: str, name: str, labels: list[str]) -> int:
    """Return the number of a label. Another program may have written true as TRUE, or 1 as 1.0."""
    exact = [label for label in labels if label == name]
    matches = exact or [label for label in labels if _simplify(label) == _simplify(name)]
    if len(matches) != 1:
        match = closest_match(name, labels)
        hint = f' Did you mean "{match}"?' if match else ""
        raise UserError(f"{place}: the verdict {literal(name)} is not one of the labels: {listing(labels)}.{hint}")
    return labels.index(matches[0])


def _simplify(label: str) -> str:
    return label.lower().removesuffix(".0")
