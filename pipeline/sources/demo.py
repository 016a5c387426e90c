"""Load the demo corpus: made-up pairs of sentences like those of MRPC.

Both sentences of a pair describe the same event. If they are not paraphrases, one or two facts differ: a number, a
name, a negation, or who did it to whom. Each sentence is told in its own style, so the words that two sentences share
say little about whether they mean the same.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.sources.corpus import Corpus, published_origin
from pipeline.sources.glue import glue_task
from pipeline.sources.tables import read_bytes, read_table

DEMO = replace(glue_task("mrpc"), name="demo")
DEMO_FILE = Path(__file__).with_name("demo.csv")


def load_demo() -> Corpus:
    """Read the corpus: 640 pairs for train, 120 for validation and 240 for test."""
    rows = read_table(DEMO_FILE, read_bytes(DEMO_FILE)).rows
    rows = rows.assign(label=rows["label"].map(DEMO.labels.index), idx=np.arange(len(rows), dtype=np.int32))
    columns = [*DEMO.text_columns, "label", "idx"]
    splits = {split: rows.loc[rows["split"] == split, columns] for split in DEMO.splits}
    return Corpus(DEMO, splits, published_origin(splits, language="en"))
