"""The Microsoft Research Paraphrase Corpus (Dolan & Brockett 2005) as GLUE splits it (Wang et al. 2018)."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.messages import UserError, log
from pipeline.sources.corpus import Corpus, Pair, paraphrases, rows_sha256, table_of
from pipeline.sources.fetch import Unavailable, from_hub, from_web, inside, mirror


@dataclass(frozen=True)
class SplitChecksum:
    """What a split must have: number of rows, number with label 1, sha256 of all rows (see `rows_sha256`)."""

    rows: int
    equivalent: int
    sha256: str


@dataclass(frozen=True)
class FileChecksum:
    size: int  # bytes
    sha256: str


CHECKSUMS = {
    "train": SplitChecksum(3668, 2474, "c80352a797857af8d239bc55075d8e0e39d29c3d527a06a37873e3cb39d330fe"),
    "validation": SplitChecksum(408, 279, "2ddb0c3339e1fb75665fbaa362d14f2cf8926dfdda535a63b3b857c1ed784dc4"),
    "test": SplitChecksum(1725, 1147, "85eb541d1c9ac23b4125ab1802624afe2e2e49c957bc3306906d5796414f1a4c"),
}
HUB_REPO = "nyu-mll/glue"
HUB_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
PUBLISHED = {"dataset": HUB_REPO, "config": "mrpc", "revision": HUB_REVISION}

TRAIN_FILE, TEST_FILE, DEV_IDS_FILE = "msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "mrpc_dev_ids.tsv"
ORIGINAL_HOST = "https://dl.fbaipublicfiles.com"
# Addresses, sizes and checksums as the glue builders of datasets and tensorflow-datasets publish them.
ORIGINALS = {
    TRAIN_FILE: (
        "senteval/senteval_data",
        FileChecksum(1_047_044, "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89"),
    ),
    TEST_FILE: (
        "senteval/senteval_data",
        FileChecksum(441_275, "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784"),
    ),
    DEV_IDS_FILE: (
        "glue/data",
        FileChecksum(6_222, "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7"),
    ),
}
_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"


def load_mrpc() -> Corpus:
    """MRPC from the first source that has it: the mirror directory, the Hub, the original addresses.

    A mirror that is named but wrong is an error, since whoever named it wants to know. Raises UserError.
    """
    if directory := mirror("MRPC_MIRROR"):
        try:
            corpus = _from_originals(directory)
        except Unavailable as error:
            raise UserError(f"MRPC_MIRROR: {error}; fix or replace the file") from None
        log.info("MRPC from MRPC_MIRROR")
        return corpus
    failures = ["MRPC_MIRROR is not set"]
    others: dict[str, Callable[[], Corpus]] = {f"the Hub ({HUB_REPO})": _from_hub, "the original addresses": _from_web}
    for name, source in others.items():
        try:
            corpus = source()
        except Unavailable as error:
            failures.append(f"{name}: {error}")
        else:
            log.info("MRPC from %s", name)
            return corpus
    raise UserError(
        f"MRPC could not be fetched: {'; '.join(failures)}. Connect to a network, or set MRPC_MIRROR to a directory "
        f'with {", ".join(ORIGINALS)}, or run "make demo", which needs neither'
    )


def _from_hub() -> Corpus:
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    corpus = {}
    for split in CHECKSUMS:
        file = f"mrpc/{split}-00000-of-00001.parquet"
        path = from_hub(HUB_REPO, file, HUB_REVISION, "dataset")
        try:
            rows = pq.read_table(path, columns=list(Pair._fields)).to_pylist()
        except (ArrowException, OSError) as error:
            raise Unavailable(f"{file} is no parquet file of MRPC ({' '.join(str(error).split())})") from None
        corpus[split] = [Pair(**row) for row in rows]
    return _verified(corpus)


def _from_web() -> Corpus:
    with tempfile.TemporaryDirectory() as scratch:
        for name, (folder, file) in ORIGINALS.items():
            from_web(f"{ORIGINAL_HOST}/{folder}/{name}", Path(scratch, name), file.sha256, file.size)
        return _from_originals(Path(scratch))


def _from_originals(directory: Path) -> Corpus:
    """MRPC from the three original files: validation is the rows of the training file whose ids the id list names."""
    lines = {name: _lines(inside(directory, name), file.size) for name, (_, file) in ORIGINALS.items()}
    dev_ids = {tuple(line.split("\t")) for line in lines[DEV_IDS_FILE]}
    if len(dev_ids) < len(lines[DEV_IDS_FILE]):
        raise Unavailable(f"{directory / DEV_IDS_FILE} names {len(lines[DEV_IDS_FILE]) - len(dev_ids)} ids twice")
    corpus: dict[str, list[Pair]] = {split: [] for split in CHECKSUMS}
    for name in (TRAIN_FILE, TEST_FILE):
        path = directory / name
        if lines[name][0] == f"{_HEADER}\r":
            raise Unavailable(f"{path} has line ends of Windows (CRLF); MRPC's are LF alone")
        if lines[name][0] != _HEADER:
            raise Unavailable(f"{path} line 1 is not MRPC's header")
        for idx, line in enumerate(lines[name][1:]):
            fields = line.split("\t")
            where = f"{path} line {idx + 2}"
            if len(fields) != 5:
                raise Unavailable(f"{where} has {len(fields)} fields; a row has 5, with tabs between them")
            quality, id1, id2, sentence1, sentence2 = fields
            if quality not in ("0", "1"):
                raise Unavailable(f"{where} has the label {quality[:20]!r}; it must be 0 or 1")
            split = "test" if name == TEST_FILE else "validation" if (id1, id2) in dev_ids else "train"
            corpus[split].append(Pair(sentence1, sentence2, int(quality), idx))
    return _verified(corpus)


def _lines(path: Path, size: int) -> list[str]:
    content = path.read_bytes()
    if len(content) < size:
        raise Unavailable(f"{path} is truncated: {len(content)} of {size} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise Unavailable(f"{path} line {line} is not UTF-8") from None
    return text.removesuffix("\n").split("\n")  # not splitlines: it also cuts at characters inside sentences


def _verified(corpus: dict[str, list[Pair]]) -> Corpus:
    task = paraphrases("mrpc")
    tables = {split: table_of(task, pairs) for split, pairs in corpus.items()}
    for split, expected in CHECKSUMS.items():
        pairs = corpus[split]
        found = SplitChecksum(len(pairs), sum(pair.label for pair in pairs), rows_sha256(tables[split]))
        if found != expected:
            what = ", ".join(
                f"{name} {getattr(found, name)!s:.12} (expected: {getattr(expected, name)!s:.12})"
                for name in ("rows", "equivalent", "sha256")
                if getattr(found, name) != getattr(expected, name)
            )
            raise Unavailable(f"the {split} rows are altered: {what}")
    return Corpus(task, tables, PUBLISHED)
