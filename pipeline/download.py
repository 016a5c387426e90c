"""Stage download: fetch the corpus of sentence pairs, and verify every row."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pipeline.cli import run
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.paths import RAW, SOURCE
from pipeline.params import DataParams, keys_of, load_params
from pipeline.sources.corpus import Corpus, rows_sha256
from pipeline.sources.glue import GLUE, load_glue
from pipeline.sources.synthetic import load_sample


def download(out: Path, params: DataParams) -> None:
    """Write `out/{train,validation,test}.parquet`: the task's text columns, `label`, `idx`; task.json; and source.json.

    source.json names the task, where it is published, and the sha256 of each split's rows (see `rows_sha256`).
    Raises UserError where no source has the corpus with the known checksums, and for a pair with an empty sentence.
    """
    from pipeline.core.tables import write_split

    with atomic_output(out) as draft:
        corpus = CORPORA[params.task]()
        task = corpus.task
        draft.mkdir()
        for split, table in corpus.splits.items():
            for column in task.text_columns:
                for row, text in enumerate(table[column].to_pylist()):
                    if not text.strip():
                        idx = table["idx"][row].as_py()
                        raise UserError(
                            f"{task.name}: {split} row {row} (idx {idx}) has an empty {column}; leave it out"
                        )
            write_split(table, draft, split)
            log.info("%s: %d %s", split, len(table), task.noun)
        task.write(draft)
        hashes = {split: rows_sha256(table) for split, table in corpus.splits.items()}
        write_json(draft / SOURCE, {"task": task.name, **corpus.published, "sha256": hashes})


# Your own data: a name here and in `params.DataParams`, and a function that returns it.
CORPORA: dict[str, Callable[[], Corpus]] = {**{name: partial(load_glue, name) for name in GLUE}, "sample": load_sample}


def main() -> None:
    params = load_params()
    download(RAW, params.data)


if __name__ == "__main__":
    run(main, keys_of("data"))
