"""Stage download: fetch the corpus of sentence pairs, and hold every row to its pin."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipeline import sample
from pipeline.params import DataParams, load_params
from pipeline.sources import Unavailable, from_hub, from_web, inside, mirror
from pipeline.stage import RAW, SOURCE, SPLITS, UserError, log, run, whole, write_json

LABELS = ["not_equivalent", "equivalent"]


class Pair(NamedTuple):
    sentence1: str
    sentence2: str
    label: int  # index into LABELS
    idx: int  # the row's number in its original file


Corpus = dict[str, list[Pair]]


@dataclass(frozen=True)
class SplitPin:
    """What a split must hold: its rows, those of label 1, and the sha256 of all rows (see `rows_sha256`)."""

    rows: int
    equivalent: int
    sha256: str


@dataclass(frozen=True)
class FilePin:
    size: int  # bytes
    sha256: str


# The Microsoft Research Paraphrase Corpus (Dolan & Brockett 2005) as GLUE splits it (Wang et al. 2018).
PINS = {
    "train": SplitPin(3668, 2474, "c80352a797857af8d239bc55075d8e0e39d29c3d527a06a37873e3cb39d330fe"),
    "validation": SplitPin(408, 279, "2ddb0c3339e1fb75665fbaa362d14f2cf8926dfdda535a63b3b857c1ed784dc4"),
    "test": SplitPin(1725, 1147, "85eb541d1c9ac23b4125ab1802624afe2e2e49c957bc3306906d5796414f1a4c"),
}
HUB_REPO = "nyu-mll/glue"
HUB_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"

TRAIN_FILE, TEST_FILE, DEV_IDS_FILE = "msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "mrpc_dev_ids.tsv"
ORIGINAL_HOST = "https://dl.fbaipublicfiles.com"
# Addresses, sizes and checksums as the glue builders of datasets and tensorflow-datasets publish them.
ORIGINALS = {
    TRAIN_FILE: (
        "senteval/senteval_data",
        FilePin(1_047_044, "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89"),
    ),
    TEST_FILE: (
        "senteval/senteval_data",
        FilePin(441_275, "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784"),
    ),
    DEV_IDS_FILE: (
        "glue/data",
        FilePin(6_222, "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7"),
    ),
}
_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"


def download(out: Path, params: DataParams) -> None:
    """Write `out/{train,validation,test}.parquet`: `sentence1, sentence2, label (ClassLabel), idx`, and source.json.

    source.json names the task, where it is published, and the sha256 of each split's rows (see `rows_sha256`).
    Raises UserError where no source has the corpus as pinned, and for a pair with an empty sentence.
    """
    with whole(out) as draft:
        corpus = CORPORA[params.task]()
        for split, pairs in corpus.items():
            for row, pair in enumerate(pairs):
                if not pair.sentence1.strip() or not pair.sentence2.strip():
                    raise UserError(
                        f"{params.task}: {split} row {row} (idx {pair.idx}) has an empty sentence; leave it out"
                    )
        from datasets import ClassLabel, Dataset, Features, Value

        from pipeline.tables import write_split

        features = Features(
            sentence1=Value("string"), sentence2=Value("string"), label=ClassLabel(names=LABELS), idx=Value("int32")
        )
        draft.mkdir()
        for split in SPLITS:
            columns = dict(zip(Pair._fields, map(list, zip(*corpus[split], strict=True)), strict=True))
            write_split(Dataset.from_dict(columns, features=features), draft, split)
            positive = sum(pair.label for pair in corpus[split]) / len(corpus[split])
            log.info("%s: %d pairs, %.1f %% equivalent", split, len(corpus[split]), 100 * positive)
        hashes = {split: rows_sha256(corpus[split]) for split in SPLITS}
        write_json(draft / SOURCE, {"task": params.task, **PUBLISHED.get(params.task, {}), "sha256": hashes})


def mrpc() -> Corpus:
    """MRPC from the first source that has it: the mirror directory, the Hub, the original addresses.

    A mirror that is named but wrong is an error, since whoever named it wants to know. Raises UserError.
    """
    if directory := mirror("MRPC_MIRROR"):
        try:
            corpus = _from_originals(directory)
        except Unavailable as error:
            raise UserError(f"MRPC_MIRROR: {error}; mend or replace the file") from None
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
        f"MRPC could not be had: {'; '.join(failures)}. Connect to a network, or set MRPC_MIRROR to a directory with "
        f'{", ".join(ORIGINALS)}, or run "make demo", which needs neither'
    )


def _from_hub() -> Corpus:
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    corpus = {}
    for split in SPLITS:
        file = f"mrpc/{split}-00000-of-00001.parquet"
        path = from_hub(HUB_REPO, file, HUB_REVISION, "dataset")
        try:
            rows = pq.read_table(path, columns=list(Pair._fields)).to_pylist()
        except (ArrowException, OSError) as error:
            raise Unavailable(f"{file} is no parquet file of MRPC ({' '.join(str(error).split())})") from None
        corpus[split] = [Pair(**row) for row in rows]
    return _held_to_pins(corpus)


def _from_web() -> Corpus:
    with tempfile.TemporaryDirectory() as scratch:
        for name, (folder, pin) in ORIGINALS.items():
            from_web(f"{ORIGINAL_HOST}/{folder}/{name}", Path(scratch, name), pin.sha256, pin.size)
        return _from_originals(Path(scratch))


def _from_originals(directory: Path) -> Corpus:
    """MRPC from the three original files: validation is the rows of the training file whose ids the id list names."""
    lines = {name: _lines(inside(directory, name), pin.size) for name, (_, pin) in ORIGINALS.items()}
    dev_ids = {tuple(line.split("\t")) for line in lines[DEV_IDS_FILE]}
    if len(dev_ids) < len(lines[DEV_IDS_FILE]):
        raise Unavailable(f"{directory / DEV_IDS_FILE} names {len(lines[DEV_IDS_FILE]) - len(dev_ids)} ids twice")
    corpus: Corpus = {split: [] for split in SPLITS}
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
    return _held_to_pins(corpus)


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


def _held_to_pins(corpus: Corpus) -> Corpus:
    for split, pin in PINS.items():
        pairs = corpus[split]
        found = SplitPin(len(pairs), sum(pair.label for pair in pairs), rows_sha256(pairs))
        if found != pin:
            what = ", ".join(
                f"{name} {getattr(found, name)!s:.12} (pinned: {getattr(pin, name)!s:.12})"
                for name in ("rows", "equivalent", "sha256")
                if getattr(found, name) != getattr(pin, name)
            )
            raise Unavailable(f"the {split} rows are altered: {what}")
    return corpus


def rows_sha256(pairs: Iterable[Pair]) -> str:
    """sha256 over each row's JSON list `[sentence1, sentence2, label, idx]` and a line feed, in order, in UTF-8."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(json.dumps(list(pair), ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def embedded() -> Corpus:
    """The corpus that the project makes itself, cut into splits of about MRPC's proportions."""
    pairs = [Pair(*row, idx) for idx, row in enumerate(sample.pairs(sample.SIZE))]
    first, second = int(0.64 * len(pairs)), int(0.76 * len(pairs))
    return {"train": pairs[:first], "validation": pairs[first:second], "test": pairs[second:]}


# Your own data: a name here and in `params.DataParams`, and a function that returns its pairs.
CORPORA: dict[str, Callable[[], Corpus]] = {"mrpc": mrpc, "sample": embedded}

# The task's place on the Hub, for those who are told where the data are from.
PUBLISHED = {"mrpc": {"dataset": HUB_REPO, "config": "mrpc", "revision": HUB_REVISION}}


def main() -> None:
    params = load_params()
    download(RAW, params.data)


if __name__ == "__main__":
    run(main)
