"""Load the labeled rows of a corpus together with their places in the user's files."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from pipeline.core.task import TRAIN
from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, make_corpus
from pipeline.sources.custom import read_custom
from pipeline.sources.folds import labeled_rows
from pipeline.sources.loading import load_corpus
from pipeline.sources.raw_rows import RawRows


class SourceRows(NamedTuple):
    """The rows of a corpus.

    Attributes:
        corpus: The rows of each split have the additional column "place": the file and the line, or the number of the
            row in a published corpus.
        files: The rows of the user's file of each split. Their index is the place. Empty for a published corpus.
    """

    corpus: Corpus
    files: Mapping[str, RawRows]

    @property
    def labeled(self) -> pd.DataFrame:
        """The rows of train and validation, with the same `idx` as in the predictions of a fold group."""
        return labeled_rows(self.corpus)


def load_source_rows(params: DataParams) -> SourceRows:
    """Load the rows of all splits. Raises UserError if `load_corpus` does."""
    if params.task == "custom":
        files, _ = read_custom(params)
        corpus = make_corpus(files, params)
    else:
        files, corpus = {}, load_corpus(params)
    splits = {}
    train = corpus.splits[TRAIN]
    for split, rows in corpus.splits.items():
        # A split without a file is a part of train.
        if source := files.get(split, files.get(TRAIN)):
            places = list(source.columns.index[rows["idx"]])
        else:
            # A split that was made from a Hub dataset's train has none of the row numbers that are left there.
            is_part_of_train = params.task == "hub" and not rows["idx"].isin(train["idx"]).any()
            places = [f"{TRAIN if is_part_of_train else split} row {idx}" for idx in rows["idx"]]
        splits[split] = rows.assign(place=places)
    return SourceRows(replace(corpus, splits=splits), files)
