"""Stage download: fetch the corpus of sentence pairs, and verify every row."""

from collections.abc import Callable
from pathlib import Path

from pipeline.cli import run
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.paths import RAW, SOURCE
from pipeline.params import DataParams, keys_of, load_params
from pipeline.sources import mrpc
from pipeline.sources.corpus import Corpus, paraphrases, rows_sha256
from pipeline.sources.mrpc import load_mrpc
from pipeline.sources.synthetic import load_sample


def download(out: Path, params: DataParams) -> None:
    """Write `out/{train,validation,test}.parquet`: the task's text columns, `label`, `idx`; task.json; and source.json.

    source.json names the task, where it is published, and the sha256 of each split's rows (see `rows_sha256`).
    Raises UserError where no source has the corpus with the known checksums, and for a pair with an empty sentence.
    """
    task = paraphrases(params.task)
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

        types = schema({**dict.fromkeys(task.text_columns, pa.string()), "label": task.labels, "idx": pa.int32()})
        draft.mkdir()
        for split in task.splits:
            first, second, label, idx = zip(*corpus[split], strict=True)
            columns = [from_strings(first), from_strings(second)]
            columns += [from_numpy(np.array(label)), from_numpy(np.array(idx, dtype=np.int32))]
            write_split(pa.table(columns, schema=types), draft, split)
            positive = sum(pair.label for pair in corpus[split]) / len(corpus[split])
            log.info("%s: %d pairs, %.1f %% equivalent", split, len(corpus[split]), 100 * positive)
        task.write(draft)
        hashes = {split: rows_sha256(corpus[split]) for split in task.splits}
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
