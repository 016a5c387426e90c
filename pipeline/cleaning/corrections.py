"""Write copies of the user's files with corrected labels."""

from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pipeline.cleaning.ranking import NO_LABELS
from pipeline.cleaning.source_rows import SourceRows, load_source_rows
from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import closest_match, listing, quoted
from pipeline.params import DataParams
from pipeline.sources.corpus import make_corpus
from pipeline.sources.custom import read_custom
from pipeline.sources.duplicates import hash_rows
from pipeline.tabular.writing import writing_rows

_LABEL, _SPLIT = "label", "split"  # columns of the copies


class Corrections(NamedTuple):
    """What `correct` has written.

    Attributes:
        counts: The number of changed labels in each split.
        settings: The values of the section `data` of params.yaml with which a run uses the files, keyed by name.
    """

    files: list[Path]
    counts: dict[str, int]
    settings: dict[str, Any]


def require_custom_data(params: DataParams, directory: Path) -> None:
    """Raise UserError if the data is not the user's own files, or if the directory for the copies exists."""
    if params.task != "custom":
        raise UserError(f"--apply needs your own files, but data.task is {params.task}.")
    if directory.exists():
        raise UserError(f"{directory} exists. Choose another directory with --out.")


def correct(params: DataParams, verdicts: pd.DataFrame, directory: Path) -> Corrections:
    """Write a JSON Lines file for each of the user's files, with the columns that a run needs.

    The labels are the names of the classes, lists of names, or numbers. Each row stays in its split: if the splits
    depend on the labels, the copy of train has a column with the split of each row.

    Args:
        verdicts: The rows of suspects.csv with a verdict, see `cleaning.report.read_verdicts`.
        directory: A directory that does not exist yet.

    Raises:
        UserError: The data has changed, a verdict is not a label, no label changes, or a run would not read the same
            rows from the copies.
    """
    source = load_source_rows(params)
    task, splits = source.corpus.task, source.corpus.splits
    corrected = _corrected_labels(source, verdicts)
    if not corrected:
        raise UserError("each verdict is the label that the row already has, so there is nothing to correct.")
    # Only this type of split looks at the labels, which will be different. With a column, it still keeps a few rows of
    # each class in train.
    keep_splits = params.split.type == "stratify" and len(splits) > len(source.files)
    split_settings = {"type": "fixed", "column": _SPLIT} if keep_splits else {}
    settings = _settings(task, directory)
    with atomic_output(directory) as draft:
        draft.mkdir()
        for split in source.files:
            with writing_rows(draft / f"{split}.jsonl") as write:
                write(_columns(split, source, corrected, keep_splits), {})
        changes = {**settings, "directory": str(draft), "split": params.split.model_copy(update=split_settings)}
        _require_same_rows(source, corrected, params.model_copy(update=changes), directory)
    counts = {split: int(rows["place"].isin(corrected).sum()) for split, rows in splits.items()}
    return Corrections(
        files=[directory / f"{split}.jsonl" for split in source.files],
        counts={split: count for split, count in counts.items() if count},
        settings=settings | {f"split.{name}": value for name, value in split_settings.items()},
    )


def _corrected_labels(source: SourceRows, verdicts: pd.DataFrame) -> dict[str, Any]:
    """Return the labels that a verdict changes, keyed by the place of the row. They are encoded as in a corpus.

    Raises:
        UserError: A verdict is not a label, a row has two verdicts, or its text is not the same as in the data.
    """
    task = source.corpus.task
    rows = source.labeled.set_index("idx")
    rows["hash"] = hash_rows(rows, task.text_columns)["row"]  # A spreadsheet may change line breaks.
    corrected: dict[str, Any] = {}
    places: set[str] = set()
    for idx, verdict, text_hash in zip(
        verdicts["idx"], verdicts["verdict"], hash_rows(verdicts, task.text_columns)["row"], strict=True
    ):
        if idx not in rows.index or rows.loc[idx, "hash"] != text_hash:
            raise UserError(
                f"idx {idx}: the text next to the verdict is not the text in your data. If a spreadsheet has changed "
                "the text, copy it back from suspects.html. If your data has changed, run python -m pipeline.folds and "
                "python -m pipeline.suspects again."
            )
        place = rows.loc[idx, "place"]
        if place in places:
            raise UserError(f"idx {idx} has two verdicts. Keep one.")
        places.add(place)
        label = _parse_verdict(idx, verdict, task)
        if not np.array_equal(label, rows.loc[idx, "label"]):
            corrected[place] = label
    return corrected


def _parse_verdict(idx: int, verdict: str, task: Task) -> Any:
    """Encode a verdict as a label of a corpus. Raises UserError if it is not a label of the task."""
    if task.problem_type == "regression":
        try:
            number = float(verdict)
        except ValueError:
            number = np.nan
        if not isfinite(number):
            raise UserError(f"idx {idx}: the verdict {quoted(verdict)} is not a number.")
        return number
    names = [verdict]
    if task.problem_type == "multi_label_classification":
        names = [] if verdict == NO_LABELS else [name.strip() for name in verdict.split("|")]
    labels = []
    for name in names:
        label = _matching_label(name, task.labels)
        if label is None:
            match = closest_match(name, task.labels)
            hint = f" Did you mean {quoted(match)}?" if match else ""
            raise UserError(
                f"idx {idx}: the verdict {quoted(name)} is not a label. The labels are: {listing(task.labels)}.{hint}"
            )
        labels.append(label)
    if task.problem_type == "single_label_classification":
        return task.labels.index(labels[0])
    return [int(label in labels) for label in task.labels]


def _matching_label(name: str, labels: list[str]) -> str | None:
    """Return the label that a verdict means, or None if there is none, or several.

    A spreadsheet may have changed true to TRUE, or 1 to 1.0.
    """
    if name in labels:
        return name
    matches = [label for label in labels if _simplify(label) == _simplify(name)]
    return matches[0] if len(matches) == 1 else None


def _simplify(label: str) -> str:
    return label.lower().removesuffix(".0")


def _columns(split: str, source: SourceRows, corrected: dict[str, Any], keep_splits: bool) -> dict[str, list[Any]]:
    """Return the columns of the copy of a file, with all of its rows.

    Args:
        corrected: See `_corrected_labels`.
        keep_splits: Whether to add a column with the split of each row of train.
    """
    corpus, columns = source.corpus, source.files[split].columns
    labels: dict[str, Any] = {}
    splits: dict[str, str] = {}
    for name, rows in corpus.splits.items():
        splits |= dict.fromkeys(rows["place"], name)
        if "label" in rows:
            labels |= dict(zip(rows["place"], rows["label"], strict=True))
    labels |= corrected
    # A row that was dropped, because it has no text or no label, has no label, so that it is dropped again.
    values = [_json_value(labels[place], corpus.task) if place in labels else None for place in columns.index]
    copy = {**{name: columns[name].tolist() for name in columns}, _LABEL: values}
    if keep_splits and split == TRAIN:
        copy[_SPLIT] = [splits.get(place, TRAIN) for place in columns.index]
    return copy


def _json_value(label: Any, task: Task) -> Any:
    """Return the name of a class, the names of several labels, or a number."""
    if task.problem_type == "regression":
        return float(label)
    if task.problem_type == "single_label_classification":
        return task.labels[int(label)]
    return [name for name, present in zip(task.labels, label, strict=True) if present]


def _settings(task: Task, directory: Path) -> dict[str, Any]:
    """Return the values of the section `data` with which a run uses the copies."""
    settings: dict[str, Any] = {
        "directory": str(directory),
        "label_column_name": _LABEL,
        "problem_type": task.problem_type,
        "encoding": "utf-8",
    }
    if len(task.labels) > 1:
        settings["id2label"] = {name: name for name in task.labels}
    return settings


def _require_same_rows(source: SourceRows, corrected: dict[str, Any], params: DataParams, directory: Path) -> None:
    """Raise UserError if a run that uses the copies would not have the rows of the source with the corrected labels.

    Args:
        params: The parameters with which such a run reads the copies. Their directory is the draft.
        directory: The directory that the draft becomes, for messages.
    """
    try:
        copies = make_corpus(read_custom(params)[0], params)
    except UserError as error:
        reason = str(error).replace(params.directory, str(directory))
        raise UserError(
            f"--apply has written nothing, because a run could not read the copies: {reason} Correct the labels in "
            "your own files instead."
        ) from None
    for split, rows in source.corpus.splits.items():
        columns = rows.columns.drop("place")
        if "label" in rows:
            labels = [corrected.get(place, label) for place, label in zip(rows["place"], rows["label"], strict=True)]
            rows = rows.assign(label=labels)
        copy = copies.splits.get(split, pd.DataFrame()).reindex(columns=columns)
        if rows[columns].values.tolist() != copy.values.tolist():
            raise UserError(
                f"--apply has written nothing, because with the corrected labels, {split} would have other rows or "
                f'labels. If one of your columns is called "{_LABEL}" or "{_SPLIT}", rename it. Otherwise, correct the '
                "labels in your own files instead."
            )
