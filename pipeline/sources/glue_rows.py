"""Load a task of GLUE from a mirror directory or the Hub, and check that its rows are the published ones."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from pipeline.core.messages import UserError, log, one_line
from pipeline.core.task import Task
from pipeline.core.text import literal
from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, drop_incomplete, published_origin, rows_sha256
from pipeline.sources.fetch import download_file, local_file, mirror_directory, require_sha256
from pipeline.sources.glue import ARCHIVE_SHA256, GLUE, HUB_REPO, HUB_REVISION, glue_task

# The original files of MRPC (Dolan & Brockett 2005).
MRPC_FILES = ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "mrpc_dev_ids.tsv")
# Checksums of MRPC's rows in GLUE, made by `rows_sha256`. They are the same for every source.
MRPC_SHA256 = {
    "train": "c80352a797857af8d239bc55075d8e0e39d29c3d527a06a37873e3cb39d330fe",
    "validation": "2ddb0c3339e1fb75665fbaa362d14f2cf8926dfdda535a63b3b857c1ed784dc4",
    "test": "85eb541d1c9ac23b4125ab1802624afe2e2e49c957bc3306906d5796414f1a4c",
}


def load_glue(params: DataParams) -> Corpus:
    """Load a task from its mirror if there is one, or else from the Hub.

    Raises:
        UserError: The Hub does not provide the published rows, or a file of the mirror is missing or damaged.
    """
    name = params.task
    task, folder = glue_task(name), GLUE[name].folder
    variable = "MRPC_MIRROR" if name == "mrpc" else "GLUE_MIRROR"
    directory = mirror_directory(variable)
    if directory and name == "mrpc":
        source, splits = variable, _read_mrpc(task, directory)
    elif directory and (directory / folder).is_dir():
        source, splits = variable, _read_archive(task, directory)
    else:
        if directory:
            log.info("%s has no directory %s, so %s comes from the Hub", variable, folder, folder)
        source, splits = f"the Hub ({HUB_REPO})", _read_hub(task)
    splits = _published_rows(task, splits, source)
    origin = published_origin(splits, dataset=HUB_REPO, config=name, revision=HUB_REVISION, language="en")
    splits, warnings = drop_incomplete(splits, task, params.on_missing)
    log.info("loaded %s from %s", folder, source)
    return Corpus(task, splits, origin, warnings)


def _published_rows(task: Task, splits: dict[str, pd.DataFrame], source: str) -> dict[str, pd.DataFrame]:
    """Encode the labels, and check that the rows are the published ones.

    Raises:
        UserError: A label, the number of rows or the checksum of MRPC's rows is wrong.
    """
    tables = {}
    for (split, rows), expected in zip(splits.items(), GLUE[task.name].rows, strict=True):
        columns = [*task.text_columns, "idx"]
        if len(rows) != expected:
            raise UserError(f"{source}: {split} must have {expected:,} rows, got {len(rows):,}. Replace its files.")
        if split not in task.unlabeled_splits:
            rows = rows.assign(label=_encode(task, rows["label"], f"{source}: {split}"))
            columns = [*task.text_columns, "label", "idx"]
        tables[split] = rows[columns].set_axis([f"{split} row {idx}" for idx in rows["idx"]])
        if task.name == "mrpc" and (sha256 := rows_sha256(tables[split])) != MRPC_SHA256[split]:
            raise UserError(
                f"{source}: the rows of {split} are not the published ones: their sha256 starts with {sha256:.12}, not "
                f"{MRPC_SHA256[split]:.12}. Replace its files."
            )
    return tables


def _encode(task: Task, labels: pd.Series, place: str) -> pd.Series:
    """Return class numbers, or scores from 0 to 5. Raises UserError for any other label."""
    if task.is_single_label:
        by_name = {name: number for number, name in enumerate(task.labels)}
        by_label = by_name | {str(number): number for number in by_name.values()}
        numbers = labels.map(by_label)
        is_valid, expected = numbers.notna(), " or ".join(by_label)
    else:
        # The Hub stores scores as 32-bit floats. Formatted as text, they are equal to the scores in the archives.
        numbers = pd.to_numeric(labels, errors="coerce").astype(np.float32).astype(str).astype(float)
        is_valid, expected = numbers.between(0, 5), "from 0 to 5"
    if not is_valid.all():
        label = labels[~is_valid].iloc[0]
        raise UserError(f"{place} has the label {literal(label)}, but a label must be {expected}. Replace its files.")
    return numbers.astype(int) if task.is_single_label else numbers


def _read_mrpc(task: Task, directory: Path) -> dict[str, pd.DataFrame]:
    """Read the original files. Rows of the training file whose ids are in the list of ids are validation rows."""
    ids, texts = ["#1 ID", "#2 ID"], ["#1 String", "#2 String"]
    train_path, test_path, ids_path = (local_file(directory, name) for name in MRPC_FILES)
    train, test = (_read_tsv(path, [*ids, *texts, "Quality"]) for path in (train_path, test_path))
    validation_ids = pd.MultiIndex.from_frame(_read_tsv(ids_path, ids, header=ids))
    is_validation = pd.MultiIndex.from_frame(train[ids]).isin(validation_ids)
    names = dict(zip([*texts, "Quality"], [*task.text_columns, "label"], strict=True))
    train, test = (rows.assign(idx=range(len(rows))).rename(columns=names) for rows in (train, test))
    return {"train": train[~is_validation], "validation": train[is_validation], "test": test}


def _read_archive(task: Task, directory: Path) -> dict[str, pd.DataFrame]:
    """Read the files of a task in the layout of GLUE's archives."""
    glue = GLUE[task.name]
    columns = glue.columns or [*glue.texts, "label"]
    splits = {}
    for split in task.splits:
        file = f"{glue.folder}/{_published(task, split).replace('validation', 'dev')}.tsv"
        path = local_file(directory, file)
        if file in ARCHIVE_SHA256:
            require_sha256(path, ARCHIVE_SHA256[file])
        else:
            log.warning("%s: its checksum is not known, so only the number of rows is checked", path)
        is_unlabeled = split in task.unlabeled_splits
        rows = _read_tsv(path, columns[:-1]) if is_unlabeled else _read_tsv(path, columns, glue.header)
        names = dict(zip(columns, [*task.text_columns, "label"], strict=True))
        splits[split] = rows.rename(columns=names).assign(idx=range(len(rows)))
    return splits


def _read_hub(task: Task) -> dict[str, pd.DataFrame]:
    splits = {}
    for split in task.splits:
        file = f"{task.name}/{_published(task, split)}-00000-of-00001.parquet"
        path = download_file(HUB_REPO, file, HUB_REVISION, "dataset")
        rows = pq.read_table(path, columns=[*task.text_columns, "label", "idx"]).to_pandas()
        splits[split] = rows.assign(label=rows["label"].astype(str))
    return splits


def _published(task: Task, split: str) -> str:
    """Return the name of a split in the archives and on the Hub."""
    return f"{split}_matched" if task.name == "mnli" and split in ("validation", "test") else split


def _read_tsv(path: Path, columns: list[str], header: list[str] | None = None) -> pd.DataFrame:
    """Read a tab-separated file without quoting.

    Args:
        header: The names of all columns; None if they are in the first line.

    Raises:
        UserError: The file does not have the published format.
    """
    try:
        # pandas accepts rows with too many fields if `usecols` is set.
        rows = pd.read_csv(
            path, sep="\t", names=header, index_col=False, dtype=str, keep_default_na=False, encoding="utf-8-sig",
            quoting=csv.QUOTE_NONE, lineterminator="\n", skip_blank_lines=False,
        )  # fmt: skip
    except ValueError as error:  # This includes the errors of pandas, and text that is not UTF-8.
        raise UserError(f"{path} is not the published file: {one_line(error)}. Replace it.") from None
    if missing := [name for name in columns if name not in rows]:
        raise UserError(f"{path} is not the published file: it has no column {', '.join(missing)}. Replace it.")
    return rows[columns]
