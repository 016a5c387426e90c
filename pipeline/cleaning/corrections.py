"""Write copies of the user's files with corrected labels."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pipeline.cleaning.ranking import NO_LABELS, label_name
from pipeline.cleaning.source_rows import SourceRows, load_source_rows
from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output
from pipeline.core.task import TRAIN, Task
from pipeline.core.text import closest_match, listing, quoted
from pipeline.params import DataParams
from pipeline.sources.label_values import label_text
from pipeline.tabular.writing import writing_rows

_LABEL, _SPLIT = "label", "split"  # columns of the copies


class Corrections(NamedTuple):
    """What `correct` has written.

    Attributes:
        counts: The number of changed labels in each split.
        overrides: Parameters as for `dvc exp run -S`, with which a run uses the files.
    """

    files: list[Path]
    counts: dict[str, int]
    overrides: list[str]


def correct(params: DataParams, verdicts: pd.DataFrame, directory: Path) -> Corrections:
    """Write a CSV for each of the user's files, with the columns that a run needs and the names of the classes.

    Each row stays in its split. If the splits were made from train, its copy has a column with the split of each row.

    Args:
        verdicts: The rows of suspects.csv with a verdict, see `cleaning.report.read_verdicts`.
        directory: It must not exist yet.

    Raises:
        UserError: The data are not the user's own files or have changed, a verdict is not a label, or the directory
            exists.
    """
    if params.task != "custom":
        raise UserError(f"--apply needs your own files, but data.task is {params.task}.")
    if directory.exists():
        raise UserError(f"{directory} exists. Remove it, or choose another directory with --out.")
    source = load_source_rows(params)
    task = source.corpus.task
    corrected = _labels_by_place(source, verdicts)
    with atomic_output(directory) as draft:
        draft.mkdir(parents=True)
        for split in source.files:
            with writing_rows(draft / f"{split}.csv") as write:
                write(_columns(split, source, corrected), {})
    labeled = source.labeled
    changed = labeled[labeled["place"].isin(corrected)]
    return Corrections(
        files=[directory / f"{split}.csv" for split in source.files],
        counts={
            split: count
            for split, rows in source.corpus.splits.items()
            if (count := int(rows["place"].isin(changed["place"]).sum()))
        },
        overrides=_overrides(params, task, directory, splits_are_made=len(source.corpus.splits) > len(source.files)),
    )


def _labels_by_place(source: SourceRows, verdicts: pd.DataFrame) -> dict[str, str]:
    """Return the corrected labels as they are written into a file, keyed by the place of the row.

    Raises:
        UserError: A verdict is not a label, or its row is not the same as in the data.
    """
    task = source.corpus.task
    rows = source.labeled.set_index("idx")
    corrected = {}
    for suspect in verdicts.to_dict("records"):
        row = rows.loc[suspect["idx"]] if suspect["idx"] in rows.index else None
        if row is None or any(row[name] != suspect[name] for name in task.text_columns):
            raise UserError(
                f"idx {suspect['idx']}: the text in the file with the verdicts is not the text in your data. If your "
                "data have changed, run python -m pipeline.folds and python -m pipeline.suspects again."
            )
        label = _checked(suspect["verdict"], task)
        if label != _as_field(label_name(task, row["label"]), task):
            corrected[row["place"]] = label
    return corrected


def _checked(verdict: str, task: Task) -> str:
    """Return a verdict as it is written into a file. Raises UserError if it is not a label of the task."""
    if task.problem_type == "regression":
        try:
            return label_name(task, float(verdict))
        except ValueError:
            raise UserError(f"verdict: {quoted(verdict)} is not a number.") from None
    names = [verdict]
    if task.problem_type == "multi_label_classification":
        names = [] if verdict == NO_LABELS else [name.strip() for name in verdict.split("|")]
    for name in names:
        if name not in task.labels:
            match = closest_match(name, task.labels)
            hint = f" Did you mean {quoted(match)}?" if match else ""
            raise UserError(f"verdict: {quoted(name)} is not a label. The labels are: {listing(task.labels)}.{hint}")
    return _as_field("|".join(names) or NO_LABELS, task)


def _as_field(label: str, task: Task) -> str:
    """Return the name of a label as it is written into a file. Several labels are a list."""
    if task.problem_type != "multi_label_classification" or label == NO_LABELS:
        return label
    return json.dumps(label.split("|"), ensure_ascii=False)


def _columns(split: str, source: SourceRows, corrected: dict[str, str]) -> dict[str, list[Any]]:
    """Return the columns of the copy of a file, with all of its rows.

    Args:
        corrected: The corrected labels, keyed by the place of the row.
    """
    corpus, file = source.corpus, source.files[split]
    labels: dict[str, str] = {}
    splits: dict[str, str] = {}
    for name, rows in corpus.splits.items():
        splits |= dict.fromkeys(rows["place"], name)
        if "label" in rows:
            names = [_as_field(label_name(corpus.task, label), corpus.task) for label in rows["label"]]
            labels |= dict(zip(rows["place"], names, strict=True))
    labels |= corrected
    columns: dict[str, list[Any]] = {name: file.columns[name].tolist() for name in file.columns}
    # A row that was dropped, because it has no text or no label, keeps what it has.
    columns[_LABEL] = [labels.get(place) or label_text(label) or "" for place, label in file.labels.items()]
    if split == TRAIN:
        columns[_SPLIT] = [splits.get(place, TRAIN) for place in file.columns.index]
    return columns


def _overrides(params: DataParams, task: Task, directory: Path, splits_are_made: bool) -> list[str]:
    values: dict[str, Any] = {
        "directory": str(directory),
        "label_column_name": _LABEL,
        "problem_type": task.problem_type,
        "delimiter": None,
        "encoding": "utf-8",
        "header": True,
    }
    current = params.model_dump()
    if task.labels:
        values["id2label"] = [f"{name}={name}" for name in task.labels]
    if splits_are_made:
        values |= {"split.type": "fixed", "split.column": _SPLIT}
    return [
        f"data.{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in values.items()
        if current.get(key, ...) != value
    ]
