"""What only MRPC has (Dolan & Brockett 2005): three original files, and checksums of the rows."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipeline.sources import fetch
from pipeline.sources.corpus import Record, read_tsv
from pipeline.sources.fetch import Unavailable, inside

# Checksums of the rows of each split in GLUE, whatever the source; see `rows_sha256`.
ROWS_SHA256 = {
    "train": "c80352a797857af8d239bc55075d8e0e39d29c3d527a06a37873e3cb39d330fe",
    "validation": "2ddb0c3339e1fb75665fbaa362d14f2cf8926dfdda535a63b3b857c1ed784dc4",
    "test": "85eb541d1c9ac23b4125ab1802624afe2e2e49c957bc3306906d5796414f1a4c",
}


class _Original(NamedTuple):
    folder: str
    size: int  # bytes
    sha256: str


TRAIN_FILE, TEST_FILE, DEV_IDS_FILE = "msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "mrpc_dev_ids.tsv"
ORIGINAL_HOST = "https://dl.fbaipublicfiles.com"
# Addresses, sizes and checksums as the glue builders of datasets and tensorflow-datasets publish them.
ORIGINALS = {
    TRAIN_FILE: _Original(
        "senteval/senteval_data", 1_047_044, "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89"
    ),
    TEST_FILE: _Original(
        "senteval/senteval_data", 441_275, "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784"
    ),
    DEV_IDS_FILE: _Original("glue/data", 6_222, "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7"),
}
_COLUMNS = ["#1 ID", "#2 ID", "#1 String", "#2 String", "Quality"]


def from_web() -> Iterator[Record]:
    """Yield the rows of the original files, downloaded from the original addresses. Raises Unavailable."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, original in ORIGINALS.items():
            url = f"{ORIGINAL_HOST}/{original.folder}/{name}"
            fetch.from_web(url, Path(scratch, name), original.sha256, original.size)
        yield from from_originals(Path(scratch))


def from_originals(directory: Path) -> Iterator[Record]:
    """Yield the rows of the original files. The rows of the training file that are in the id list are validation rows.

    Raises:
        Unavailable: A file is missing or damaged.
    """
    paths = {name: inside(directory, name) for name in ORIGINALS}
    for name, path in paths.items():
        if (size := path.stat().st_size) < ORIGINALS[name].size:
            raise Unavailable(f"{path} is truncated: {size} of {ORIGINALS[name].size} bytes")
    ids = [tuple(fields) for _, fields in read_tsv(paths[DEV_IDS_FILE], _COLUMNS[:2], header=_COLUMNS[:2])]
    if repeated := len(ids) - len(set(ids)):
        raise Unavailable(f"{paths[DEV_IDS_FILE]} names {repeated} ids twice")
    dev_ids = set(ids)
    for name in (TRAIN_FILE, TEST_FILE):
        for idx, (where, (id1, id2, *texts, quality)) in enumerate(read_tsv(paths[name], _COLUMNS)):
            split = "test" if name == TEST_FILE else "validation" if (id1, id2) in dev_ids else "train"
            yield Record(split, where, tuple(texts), quality, idx)
