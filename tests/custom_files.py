"""A user's own files for the tests, and what download makes of them."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from conftest import data_params

from pipeline.download import download

WORDS = ["night", "river", "stone", "paper", "green", "seven", "quiet", "order", "music", "field"]


def rows(count: int, labels: list[Any], seed: int = 0) -> list[tuple[str, Any]]:
    """Return different texts with labels that take turns."""
    rng = random.Random(seed)
    return [
        (f"{' '.join(rng.choices(WORDS, k=6))} {seed} {number}", labels[number % len(labels)])
        for number in range(count)
    ]


def csv(examples: list[tuple[Any, ...]], header: str = "text,label") -> str:
    return "\n".join([header, *(",".join(map(str, example)) for example in examples), ""])


def download_custom(files: dict[str, str | bytes], **changes: Any) -> Path:
    """Write the files to data/custom in the working directory, and run download. Returns its output."""
    for name, content in files.items():
        path = Path("data/custom", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    split = {**data_params().split.model_dump(), **changes.pop("split", {})}
    download(Path("data/raw"), data_params(task="custom", split=split, **changes))
    return Path("data/raw")


def read(raw: Path, split: str) -> list[dict[str, Any]]:
    return pq.read_table(raw / f"{split}.parquet").to_pylist()  # type: ignore[no-any-return]


def content(raw: Path, name: str) -> dict[str, Any]:
    return json.loads((raw / f"{name}.json").read_text())  # type: ignore[no-any-return]
