"""Helpers that write custom data files and read what the pipeline makes of them."""

import io
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import data_params

from pipeline.core.messages import UserError
from pipeline.download import download
from pipeline.sources.corpus import Corpus
from pipeline.sources.loading import load_custom

WORDS = ["night", "river", "stone", "paper", "green", "seven", "quiet", "order", "music", "field"]


def rows(count: int, labels: list[Any], seed: int = 0) -> list[tuple[str, Any]]:
    """Return distinct texts, with the labels repeated in turn."""
    rng = random.Random(seed)
    return [
        (f"{' '.join(rng.choices(WORDS, k=6))} {seed} {number}", labels[number % len(labels)])
        for number in range(count)
    ]


def csv(examples: list[tuple[Any, ...]], header: str = "text,label") -> str:
    return "\n".join([header, *(",".join(map(str, example)) for example in examples), ""])


def jsonl(examples: list[tuple[Any, ...]]) -> str:
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in examples)


def parquet(examples: list[tuple[Any, ...]], label_type: pa.DataType | None = None, **options: Any) -> bytes:
    texts, labels = zip(*examples, strict=True)
    return parquet_file(pa.table({"text": texts, "label": pa.array(labels, label_type)}), **options)


def parquet_file(table: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def write_files(files: Mapping[str, str | bytes]) -> None:
    """Write files to data/custom in the working directory, and a file without corrections."""
    for name, content in {"../corrections.csv": "correct_label,idx\n", **files}.items():
        path = Path("data/custom", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def load_files(files: Mapping[str, str | bytes], **changes: Any) -> Corpus:
    """Write the files to data/custom and read them as download does."""
    write_files(files)
    return load_custom(data_params(task="custom", **changes))


def load_error(files: Mapping[str, str | bytes], **changes: Any) -> str:
    """Run download on files that must be rejected, and return the error, which must be one line."""
    with pytest.raises(UserError) as error:
        download_custom(files, **changes)
    assert "\n" not in str(error.value) and not Path("data/raw").exists()
    return str(error.value)


def examples(corpus: Corpus, split: str) -> list[dict[str, Any]]:
    return corpus.splits[split].to_dict("records")  # type: ignore[no-any-return]


def download_custom(files: Mapping[str, str | bytes], **changes: Any) -> Path:
    """Write the files to data/custom, run download and return its output directory."""
    write_files(files)
    download(Path("data/raw"), data_params(task="custom", **changes))
    return Path("data/raw")


def read_split(raw: Path, split: str) -> list[dict[str, Any]]:
    return pq.read_table(raw / f"{split}.parquet").to_pylist()  # type: ignore[no-any-return]


def read_json(raw: Path, name: str) -> dict[str, Any]:
    return json.loads((raw / f"{name}.json").read_text())  # type: ignore[no-any-return]
