"""Load the demo corpus: made-up pairs of sentences like those of MRPC.

Both sentences of a pair describe the same event. If they are not paraphrases, one or two facts differ: a number, a
name, a negation, or who did it to whom. Each sentence is told in its own style, so the words that two sentences share
say little about whether they mean the same.
"""

from dataclasses import replace
from pathlib import Path

from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, make_corpus, published_origin
from pipeline.sources.glue import glue_task
from pipeline.sources.tables import read_bytes, read_table

DEMO = replace(glue_task("mrpc"), name="demo")
DEMO_FILE = Path(__file__).with_name("demo.csv")


def load_demo(params: DataParams) -> Corpus:
    """Read the corpus like a file of the user, with 640 pairs for train, 120 for validation and 240 for test."""
    settings = {
        "text_column_names": DEMO.text_columns, "label_column_name": "label", "label_separator": None,
        "problem_type": DEMO.problem_type, "id2label": {label: label for label in DEMO.labels}, "slice_columns": [],
        "split": params.split.model_copy(update={"type": "fixed", "column": "split"}),
    }  # fmt: skip
    table = read_table(DEMO_FILE, read_bytes(DEMO_FILE))
    corpus = make_corpus({"train": table}, params.model_copy(update=settings), {})
    return replace(corpus, task=DEMO, origin=published_origin(corpus.splits, language="en"))
