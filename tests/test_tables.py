"""Tables on disk: readable by the package `datasets`, which the pipeline does without."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from pipeline.core.messages import UserError
from pipeline.core.tables import (
    from_numpy,
    kind_of,
    read_batches,
    read_split,
    schema,
    to_numpy,
    write_split,
)

CLASSES = ["not_equivalent", "équivalent"]
# Every kind of column that a stage writes, and what it is for `datasets`.
KINDS: dict[str, tuple[Any, Any]] = {
    "sentence1": (pa.string(), Value("string")),
    "label": (CLASSES, ClassLabel(names=CLASSES)),
    "idx": (pa.int32(), Value("int32")),
    "logit_0": (pa.float64(), Value("float64")),
    "input_ids": (pa.list_(pa.int32()), List(Value("int32"))),
    "attention_mask": (pa.list_(pa.int8()), List(Value("int8"))),
}
SCHEMA = schema({name: kind for name, (kind, _) in KINDS.items()})
ROWS = {
    "sentence1": ["It rains.", ""],
    "label": [1, 0],
    "idx": [7, 2],
    "logit_0": [0.5, -1e-300],
    "input_ids": [[101, 2003, 102], []],
    "attention_mask": [[1, 1, 1], []],
}


def test_a_schema_is_the_one_that_datasets_writes() -> None:
    features = Features({name: feature for name, (_, feature) in KINDS.items()})
    assert SCHEMA.equals(features.arrow_schema, check_metadata=True)


def test_datasets_reads_a_split_with_its_classes(tmp_path: Path) -> None:
    write_split(pa.table(ROWS, schema=SCHEMA), tmp_path, "train")
    read = Dataset.from_parquet(str(tmp_path / "train.parquet"), cache_dir=str(tmp_path), keep_in_memory=True)
    assert read.features["label"].names == CLASSES
    assert read.to_dict() == ROWS


def test_a_split_is_read_as_written_however_it_was_written(tmp_path: Path) -> None:
    table = pa.table(ROWS, schema=SCHEMA)
    write_split(table, tmp_path, "one")
    pq.write_table(table, tmp_path / "many.parquet", row_group_size=1)
    for split in ("one", "many"):
        read = read_split(tmp_path, split, "tokenize")
        assert read == table
        assert kind_of(read.schema, "label") == CLASSES
        assert {column.num_chunks for column in read.columns} == {1}, "from many, a batch takes 300 times longer"
        of, batches = read_batches(tmp_path, split, "tokenize", rows=1)
        assert kind_of(of, "label") == CLASSES
        assert [batch.to_pylist()[0] for batch in batches] == table.to_pylist()


@pytest.mark.parametrize("read", [read_split, lambda *names: list(read_batches(*names, rows=1)[1])])
def test_a_truncated_split_names_the_stage_to_run(read: Any, tmp_path: Path) -> None:
    write_split(pa.table(ROWS, schema=SCHEMA), tmp_path, "train")
    path = tmp_path / "train.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r'train\.parquet is not a complete parquet file.*"dvc repro -f tokenize"'):
        read(tmp_path, "train", "tokenize")


def test_arrays_are_those_of_arrow() -> None:
    column = np.arange(6, dtype=np.int32).reshape(3, 2)[:, 1]
    assert from_numpy(column).equals(pa.array([1, 3, 5], pa.int32())), "also where the numbers do not lie side by side"
    for numbers in (pa.array([1.5, -2.0, 0.0]), pa.chunked_array([[1, 2], [], [3]]), pa.chunked_array([], pa.int8())):
        assert np.array_equal(to_numpy(numbers), numbers.to_numpy())
        assert to_numpy(numbers).dtype == numbers.type.to_pandas_dtype()
