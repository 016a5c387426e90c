"""Write suspects.csv, and correct the labels of its rows whose column "correct_label" a person has filled in."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.core.messages import UserError, log
from pipeline.core.output import write_text
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import did_you_mean, listing, literal
from pipeline.sources.corpus import Corpus, rows_sha256
from pipeline.sources.folds import labeled_rows
from pipeline.sources.labels import MAX_TARGET
from pipeline.sources.tables import read_bytes, read_table

SEPARATOR, NO_LABELS = "|", "[]"  # between several labels, and what stands for none of them


def write_suspects(path: Path, suspects: pd.DataFrame) -> None:
    """Write suspects.csv, which a person edits in a spreadsheet."""
    # Without the byte order mark, Excel reads UTF-8 as another encoding.
    write_text(path, "\ufeff" + suspects.to_csv(index=False, quoting=csv.QUOTE_ALL, lineterminator="\n"))


def correct(corpus: Corpus, file: Path) -> Corpus:
    """Return the corpus with the correct labels of a file in train and validation. Each row stays in its split.

    Raises:
        UserError: The file cannot be read, a correct label is not a label of the task, a row has two correct labels, or
            its text is not the text in the data.
    """
    corrections = read_corrections(file, corpus.task.text_columns)
    if corrections.empty:
        return corpus
    rows = labeled_rows(corpus)
    positions = {str(idx): position for position, idx in enumerate(rows["idx"])}
    labels = rows["label"].tolist()
    places: dict[int, str] = {}  # where the correction of a row is
    for place, correction in zip(corrections.index, corrections.to_dict("records"), strict=True):
        position = positions.get(correction["idx"].removesuffix(".0"))  # Other programs may write 1 as 1.0.
        if position is None or _words(correction, corpus.task) != _words(rows.iloc[position], corpus.task):
            raise UserError(
                f"{place}: train and validation have no row with the idx {literal(correction['idx'])} and this text. "
                "Copy the text from your data, or delete the row."
            )
        if position in places:
            raise UserError(f"{place}: {places[position]} corrects the same row. Keep one.")
        places[position] = place
        labels[position] = _parse(place, correction["correct_label"], corpus.task)
    log.info("%s: %s corrections applied", file, f"{len(corrections):,}")
    corrected = pd.Series(labels, rows.index, dtype=rows["label"].dtype)
    splits = {split: corpus.splits[split].assign(label=corrected) for split in (TRAIN, "validation")}
    origin = corpus.origin | {"corrections": rows_sha256(corrections)}
    return replace(corpus, splits=corpus.splits | splits, origin=origin)


def read_corrections(file: Path, text_columns: Sequence[str]) -> pd.DataFrame:
    """Return "correct_label", "idx" and the text columns of the rows that have a correct label, as texts."""
    table = read_table(file, read_bytes(file))
    # The committed file has a header and no rows. It cannot know the text columns.
    columns = ["correct_label", "idx", *([] if table.rows.empty else text_columns)]
    table.require(columns)
    rows = pd.DataFrame({name: table.texts(name).str.strip() for name in columns})
    return rows[rows["correct_label"] != ""]


def _words(row: Any, task: Task) -> list[str]:
    return [word for name in task.text_columns for word in row[name].split()]  # A spreadsheet may change line breaks.


def _parse(place: str, correct_label: str, task: Task) -> Any:
    """Return a correct label as a number, the number of a class, or 0 and 1 for each label."""
    if task.is_regression:
        number = pd.to_numeric(correct_label, errors="coerce")
        if not abs(number) <= MAX_TARGET:
            raise UserError(
                f"{place}: correct_label must be a number of at most {MAX_TARGET:g}, got {literal(correct_label)}."
            )
        return float(number)
    if task.is_single_label:
        return _class_number(place, correct_label, task.labels)
    names = [] if correct_label == NO_LABELS else correct_label.split(SEPARATOR)
    numbers = [_class_number(place, name.strip(), task.labels) for name in names]
    return [int(number in numbers) for number in range(len(task.labels))]


def _class_number(place: str, name: str, labels: list[str]) -> int:
    """Return the number of a label. Another program may have written true as TRUE, or 1 as 1.0."""
    exact = [label for label in labels if label == name]
    matches = exact or [label for label in labels if _simplify(label) == _simplify(name)]
    if len(matches) != 1:
        hint = did_you_mean(name, labels)
        raise UserError(f"{place}: correct_label must be one of {listing(labels)}, got {literal(name)}.{hint}")
    return labels.index(matches[0])


def _simplify(label: str) -> str:
    return label.lower().removesuffix(".0")
