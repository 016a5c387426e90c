"""Stage download: fetch the corpus of sentence pairs, and verify every row."""

from collections.abc import Callable
from pathlib import Path

from pipeline.cli import run
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.paths import RAW, SOURCE, SPLITS
from pipeline.params import DataParams, keys_of, load_params
from pipeline.sources import mrpc
from pipeline.sources.corpus import LABELS, Corpus, rows_sha256
from pipeline.sources.mrpc import load_mrpc
from pipeline.sources.synthetic import load_sample


def download(out: Path, params: DataParams) -> None:
    """Write `out/{train,validation,test}.parquet`: `sentence1, sentence2, label (ClassLabel), idx`, and source.json.

    source.json names the task, where it is published, and the sha256 of each split's rows (see `rows_sha256`).
    Raises UserError where no source has the corpus with the known checksums, and for a pair with an empty sentence.
    """
    with atomic_output(out) as draft:
        corpus = CORPORA[params.task]()
        for split, pairs in corpus.items():
            for row, pair in enumerate(pairs):
                if not pair.sentence1.strip() or not pair.sentence2.strip():
                    raise UserError(
                        f"{params.task}: {split} row {row} (idx {pair.idx}) has an empty sentence; leave it out"
                    )
        import numpy as np
        import pyarrow as pa

        from pipeline.core.tables import from_numpy, from_strings, schema, write_split

        types = schema({"sentence1": pa.string(), "sentence2": pa.string(), "label": LABELS, "idx": pa.int32()})
        draft.mkdir()
        for split in SPLITS:
            first, second, label, idx = zip(*corpus[split], strict=True)
            columns = [from_strings(first), from_strings(second)]
            columns += [from_numpy(np.array(label)), from_numpy(np.array(idx, dtype=np.int32))]
            write_split(pa.table(columns, schema=types), draft, split)
            positive = sum(pair.label for pair in corpus[split]) / len(corpus[split])
            log.info("%s: %d pairs, %.1f %% equivalent", split, len(corpus[split]), 100 * positive)
        hashes = {split: rows_sha256(corpus[split]) for split in SPLITS}
        write_json(draft / SOURCE, {"task": params.task, **PUBLISHED.get(params.task, {}), "sha256": hashes})


# Your own data: a name here and in `params.DataParams`, and a function that returns its pairs.
CORPORA: dict[str, Callable[[], Corpus]] = {"mrpc": load_mrpc, "sample": load_sample}

# Where a task is published on the Hub.
PUBLISHED = {"mrpc": mrpc.PUBLISHED}


def main() -> None:
    params = load_params()
    download(RAW, params.data)


if __name__ == "__main__":
    run(main, keys_of("data"))
