"""Cross-validation: `data.split.fold` and `python -m pipeline.folds`."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import data_params

from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.params import SplitParams
from pipeline.sources.corpus import Corpus
from pipeline.sources.demo import DEMO, load_demo
from pipeline.sources.folds import take_fold


def fold(text: str, **changes: object) -> SplitParams:
    return data_params(task="demo").split.model_copy(update={"fold": text, **changes})


def test_each_labeled_row_is_in_one_fold_and_test_is_not_used() -> None:
    corpus = load_demo()
    folds = [take_fold(corpus, fold(f"{number}/4")) for number in range(1, 5)]
    labeled = len(corpus.splits["train"]) + len(corpus.splits["validation"])
    rows = pd.concat([part.splits["test"] for part in folds])
    assert len(rows) == labeled
    assert rows["idx"].is_unique
    original = pd.concat([corpus.splits["train"], corpus.splits["validation"]])
    columns = [*DEMO.text_columns, "label"]
    assert sorted(map(tuple, rows[columns].to_numpy())) == sorted(map(tuple, original[columns].to_numpy()))
    for part in folds:
        sizes = {split: len(rows) for split, rows in part.splits.items()}
        assert sum(sizes.values()) == labeled
        assert sizes["test"] == pytest.approx(labeled / 4, rel=0.1)
        assert sizes["validation"] == pytest.approx(len(corpus.splits["validation"]) * 3 / 4, rel=0.2)
        assert part.splits["test"]["label"].mean() == pytest.approx(original["label"].mean(), abs=0.02)
        assert take_fold(corpus, fold("2/4")).splits["train"].equals(folds[1].splits["train"])


def make_corpus(texts: list[str], labels: list[object], task: Task) -> Corpus:
    rows = pd.DataFrame({"sentence1": texts, "sentence2": "the same", "label": labels, "idx": np.arange(len(texts))})
    half = len(texts) // 2
    splits = {"train": rows[:half], "validation": rows[half:].assign(idx=rows["idx"][:half].to_numpy())}
    return Corpus(replace(task, predicted_splits=["validation"]), splits, {})


def test_rows_that_share_a_text_are_in_the_same_split() -> None:
    task = replace(DEMO, text_columns=["sentence1"])
    texts = [f"text {number // 3}" for number in range(120)]
    corpus = make_corpus(texts, [number % 2 for number in range(120)], task)
    splits = take_fold(corpus, fold("1/3")).splits
    where = {text: Counter() for text in texts}
    for split, rows in splits.items():
        for text in rows["sentence1"]:
            where[text][split] += 1
    assert all(len(count) == 1 for count in where.values())


def test_too_few_rows_of_a_class_or_groups_are_rejected() -> None:
    task = replace(DEMO, text_columns=["sentence1"])
    texts = [f"text {number}" for number in range(20)]
    corpus = make_corpus(texts, [int(number < 3) for number in range(20)], task)
    with pytest.raises(UserError, match=r'only 3 rows .* "equivalent", .* 5 folds'):
        take_fold(corpus, fold("1/5"))
    corpus = make_corpus([f"text {number % 3}" for number in range(20)], [number % 2 for number in range(20)], task)
    with pytest.raises(UserError, match="3 groups of rows cannot be cut into 5 folds"):
        take_fold(corpus, fold("1/5"))


@pytest.mark.parametrize("problem_type", ["regression", "multi_label_classification"])
def test_other_types_of_tasks_have_folds(problem_type: str) -> None:
    labels = [[number % 2, int(number == 5)] if "multi" in problem_type else number / 7 for number in range(40)]
    task = replace(DEMO, text_columns=["sentence1"], problem_type=problem_type)
    corpus = make_corpus([f"text {number}" for number in range(40)], labels, task)
    sizes = [len(take_fold(corpus, fold(f"{number}/5")).splits["test"]) for number in range(1, 6)]
    assert sizes == [8] * 5
