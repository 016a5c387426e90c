"""Stage download: fetch a published corpus or read your own files, check every row, and say what is in the data."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.cli import run
from pipeline.core.data_card import LEAKAGE, DataCard
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.packages import require_locked
from pipeline.core.paths import RAW, SOURCE
from pipeline.core.tables import from_numpy, schema, to_numpy, writing_batches
from pipeline.core.task import TRAIN, Task
from pipeline.params import DataParams, keys_of, load_params
from pipeline.sources.corpus import Corpus
from pipeline.sources.duplicates import OTHERS, Bits, Codes, Columns, Marks, compare, is_empty, note
from pipeline.sources.glue import GLUE, load_glue
from pipeline.sources.own import OwnFiles
from pipeline.sources.splits import assign
from pipeline.sources.survey import found_rows, named_rows, survey
from pipeline.sources.synthetic import load_sample


def download(out: Path, params: DataParams) -> None:
    """Write to `out` a parquet file of each split: the text columns, `label`, `idx`, slice columns and `LEAKAGE`.

    A split whose labels are not known has no `label`, and train no `LEAKAGE`. Beside them are task.json, source.json
    and data_card.json. All rows are read twice in batches, and few bytes of each stay in memory.
    Raises UserError where the data are not to be had, or not what `params` says of them.
    """
    with atomic_output(out) as draft:
        source = OwnFiles(params) if params.task == "own" else CORPORA[params.task]()
        draft.mkdir()
        columns = Columns(draft.with_name("columns"), len(source.task.text_columns))
        codes, warnings = _scan(source, params, columns)
        _require_rows(source.task, codes, params)
        marks = compare(columns, codes)
        if params.on_leakage != "warn" and (leaked := _leaked(source, params, columns, codes, marks.rows)):
            warnings.append(leaked)
            _require_rows(source.task, codes, params)
            marks = compare(columns, codes)
        _write(source, draft, codes, marks)
        card = survey(source.task, draft, columns, codes, marks, warnings)
        _tell(source.task, card)
        source.task.write(draft)
        card.write(draft)
        write_json(draft / SOURCE, {"task": source.task.name, **source.origin()})


def _complete(source: OwnFiles | Corpus, split: str) -> Iterator[tuple[pa.RecordBatch, dict[str, list[int]]]]:
    """The rows of a split that lack neither a text nor the label; and of the others the `idx`, by what they lack."""
    for batch, unlabelled in source.read(split):
        empty = {name: is_empty(pc.utf8_trim_whitespace(batch[name])) for name in source.task.text_columns}
        lacking = {name: pc.indices_nonzero(of).to_pylist() for name, of in empty.items()} | {"label": unlabelled}
        kept = np.ones(len(batch), dtype=bool)
        for rows in lacking.values():
            kept[rows] = False
        if kept.all():
            yield batch, {}
        else:
            idx = to_numpy(batch["idx"])
            without = {name: idx[rows].tolist() for name, rows in lacking.items() if rows}
            yield batch.take(from_numpy(np.flatnonzero(kept))), without


def _scan(source: OwnFiles | Corpus, params: DataParams, columns: Columns) -> tuple[Codes, list[str]]:
    """Note in `columns` what is needed of each row. Returns the number of its split in the task, and warnings."""
    task = source.task
    found: list[Codes] = []
    warnings = [*source.warnings] if isinstance(source, OwnFiles) else []
    for split in source.splits:
        lacking: Counter[str] = Counter()
        first: dict[str, list[int]] = {}
        size = 0
        for batch, without in _complete(source, split):
            note(columns, batch, task)
            size += len(batch)
            for name, idx in without.items():
                lacking[name] += len(idx)
                first.setdefault(name, idx)
        if lacking:
            named = ", ".join(f"rows without {name}: {named_rows(lacking[name], first[name])}" for name in lacking)
            if params.on_missing == "refuse":
                raise UserError(
                    f"{task.name}: {split}: {named}; complete these, or set data.on_missing=drop (idx counts from 0)"
                )
            warnings.append(f"{split}: dropped {named}")
        if isinstance(source, OwnFiles) and split == TRAIN:
            found.append(assign(params.split, source.shares, columns, task.problem_type))
        else:
            found.append(np.full(size, task.splits.index(split), dtype=np.int8))
    return np.concatenate(found), warnings


def _require_rows(task: Task, codes: Codes, params: DataParams) -> None:
    for number, split in enumerate(task.splits):
        if number not in codes:
            raise UserError(
                f"{task.name}: {split} would have no rows: there are too few, or too few groups, for data.split.type "
                f"{params.split.type}, data.split.probabilities, data.on_missing and data.on_leakage"
            )


def _leaked(source: OwnFiles | Corpus, params: DataParams, columns: Columns, codes: Codes, rows: Bits) -> str:
    """Take the rows out of train that other splits have too, or refuse them. Returns a warning, or nothing."""
    leaked = (codes == 0) & (rows & OTHERS > 0)
    if not leaked.any():
        return ""
    named = f"rows that validation or test have too: {found_rows(columns, leaked)}"
    if params.on_leakage == "refuse":
        raise UserError(f"{source.task.name}: train: {named}; remove them, or set data.on_leakage=drop")
    codes[leaked] = -1
    return f"train: dropped {named}"


def _write(source: OwnFiles | Corpus, draft: Path, codes: Codes, marks: Marks) -> None:
    """Write the rows of each split, in batches."""
    task = source.task
    of_label: pa.DataType | list[str] = task.labels or pa.float64()
    if task.problem_type == "multi_label_classification":
        of_label = pa.list_(pa.int64(), len(task.labels))
    with ExitStack() as stack:
        types, writers = [], []
        for split in task.splits:
            names: dict[str, pa.DataType | list[str]] = dict.fromkeys(task.text_columns, pa.string())
            names |= {} if split in task.unlabelled else {"label": of_label}
            names |= {"idx": pa.int32()} | dict.fromkeys(task.slice_columns, pa.string())
            types.append(schema(names | ({} if split == TRAIN else {LEAKAGE: pa.int8()})))
            writers.append(stack.enter_context(writing_batches(types[-1], draft, split)))
        start = 0
        for split in source.splits:
            for batch, _ in _complete(source, split):
                own = slice(start, start := start + len(batch))
                leakage = np.maximum(2 * (marks.rows[own] & 1), marks.texts[own] & 1).astype(np.int8)
                batch = batch.append_column(LEAKAGE, from_numpy(leakage))
                for number in range(len(task.splits)):
                    at = np.flatnonzero(codes[own] == number)
                    if len(at):
                        part = batch if len(at) == len(batch) else batch.take(from_numpy(at))
                        values = [part[name] for name in types[number].names]
                        writers[number](pa.RecordBatch.from_arrays(values, schema=types[number]))


def _tell(task: Task, card: DataCard) -> None:
    for split, of in card.splits.items():
        positive = f", {of.labels[1] / of.rows:.1%} {task.labels[1]}" if task.binary and of.labels else ""
        log.info("%s: %d %s%s", split, of.rows, task.noun, positive)
    if task.verdict_split == "validation":
        why = "test has no labels" if "test" in task.predicted else "there is no test split"
        log.info("%s: verdicts rest on validation, which has also chosen the epoch", why)
    for warning in card.warnings:
        log.warning("%s", warning)


# Published corpora by `data.task`.
CORPORA: dict[str, Callable[[], Corpus]] = {**{name: partial(load_glue, name) for name in GLUE}, "sample": load_sample}


def main() -> None:
    require_locked()
    params = load_params()
    download(RAW, params.data)


if __name__ == "__main__":
    run(main, keys_of("data"))
