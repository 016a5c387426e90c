"""Cross-validation: `data.split.fold`, and `python -m pipeline.folds` with real experiments of a toy pipeline."""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Project, data_params
from sklearn.metrics import accuracy_score
from toy import experiment, restore

from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.experiments.launch import FOLD, STAGES, group_name
from pipeline.experiments.runs import read_side
from pipeline.folds import folds
from pipeline.params import SplitParams
from pipeline.sources.corpus import Corpus
from pipeline.sources.demo import DEMO, load_demo
from pipeline.sources.folds import take_fold
from pipeline.suspects import find_suspects


def fold(text: str, **changes: object) -> SplitParams:
    return data_params(task="demo").split.model_copy(update={"fold": text, **changes})


TASK = replace(DEMO, text_columns=["text"], predicted_splits=["validation"])


def make_corpus(
    texts: Sequence[object], labels: list[Any], task: Task = TASK, groups: list[Any] | None = None, **columns: list[str]
) -> Corpus:
    """Return a corpus whose validation split has every fourth row."""
    rows = pd.DataFrame({"text": map(str, texts), "label": labels, **columns}, [f"line {n}" for n in range(len(texts))])
    splits = {"train": rows[np.arange(len(rows)) % 4 > 0], "validation": rows[::4]}
    splits = {name: part.assign(idx=np.arange(len(part))) for name, part in splits.items()}
    return Corpus(task, splits, {}, groups=None if groups is None else pd.Series(groups, rows.index).dropna())


def splits_by_place(corpus: Corpus) -> dict[str, str]:
    return {place: split for split, rows in corpus.splits.items() for place in rows.index}


def test_each_labeled_row_is_in_one_fold_and_test_is_not_used() -> None:
    corpus = load_demo()
    labeled = {*corpus.splits["train"].index, *corpus.splits["validation"].index}
    folds = [take_fold(corpus, fold(f"{number}/4")) for number in range(1, 5)]
    assert sorted(place for part in folds for place in part.splits["test"].index) == sorted(labeled)
    for part in folds:
        sizes = {split: len(rows) for split, rows in part.splits.items()}
        assert sum(sizes.values()) == len({*splits_by_place(part)} & labeled) == len(labeled)
        assert sizes["test"] == pytest.approx(len(labeled) / 4, rel=0.1)
        assert sizes["validation"] == pytest.approx(len(corpus.splits["validation"]) * 3 / 4, rel=0.2)
        assert part.splits["test"]["label"].mean() == pytest.approx(corpus.splits["train"]["label"].mean(), abs=0.02)
    assert take_fold(corpus, fold("2/4")).splits["train"].equals(folds[1].splits["train"])


def test_rows_that_share_a_text_or_a_value_of_the_column_are_in_the_same_split() -> None:
    texts = [number // 2 for number in range(120)]
    # Row 1 has the text of row 0 and the author of row 2, and so on for rows 4 to 7, 8 to 11 and so on.
    authors = [f"author {(number + 1) // 2 if number % 4 else 100 + number}" for number in range(120)]
    labels = 15 * [0, 0, 0, 0, 1, 1, 1, 1]
    for values, together in ((None, 2), (authors, 4)):
        split_by_place = splits_by_place(take_fold(make_corpus(texts, labels, groups=values), fold("1/3")))
        groups = [
            {split_by_place[f"line {n}"] for n in range(first, first + together)} for first in range(0, 120, together)
        ]
        assert all(len(group) == 1 for group in groups)
        assert set.union(*groups) == {"train", "validation", "test"}


def test_pairs_with_an_empty_text_are_not_connected() -> None:
    corpus = make_corpus(
        range(40), [number % 2 for number in range(40)], replace(TASK, text_columns=["text", "other"]), other=40 * [""]
    )
    assert len(take_fold(corpus, fold("1/4")).splits["test"]) == 10


@pytest.mark.parametrize("texts", [2, 3])
def test_the_model_of_each_fold_learns_each_class(texts: int) -> None:
    """All ten rows of the second class share a few texts."""
    corpus = make_corpus([*(f"rare {n % texts}" for n in range(10)), *range(40)], 10 * [1] + 40 * [0])
    for seed, number in itertools.product(range(3), range(1, 6)):
        splits = take_fold(corpus, fold(f"{number}/5", seed=seed)).splits
        assert set(splits["train"]["label"]) == {0, 1}
        assert not set(splits["train"]["text"]) & set(splits["validation"]["text"])
        assert not splits["validation"].empty


def test_validation_does_not_take_the_last_text_of_a_class_from_train() -> None:
    """Two classes have three texts of six rows each, and the third one has two rows."""
    texts, labels = [*(number // 6 for number in range(36)), 6, 7], [*(number // 18 for number in range(36)), 2, 2]
    corpus = make_corpus(texts, labels, replace(TASK, labels=["a", "b", "c"]))
    for seed, number in itertools.product(range(5), (1, 2)):
        assert {0, 1} <= set(take_fold(corpus, fold(f"{number}/2", seed=seed)).splits["train"]["label"])


@pytest.mark.filterwarnings("error")  # Users cannot do anything about the warnings of scikit-learn.
@pytest.mark.parametrize(
    ("problem_type", "label"),
    [
        ("regression", lambda n: n / 7),
        ("multi_label_classification", lambda n: [n % 2, int(n == 5)]),
        ("single_label_classification", lambda n: 2 * (n % 2)),  # Class 1 has no rows.
        ("single_label_classification", lambda n: min(n % 40, 2)),  # Two classes have one row each.
    ],
)
def test_every_type_of_task_has_folds_of_the_same_size(problem_type: Any, label: Callable[[int], Any]) -> None:
    task = replace(TASK, problem_type=problem_type, labels=["a", "b", "c"])
    corpus = make_corpus(range(80), [label(number) for number in range(80)], task)
    assert [len(take_fold(corpus, fold(f"{number}/5")).splits["test"]) for number in range(1, 6)] == [16] * 5


TWO = [number % 2 for number in range(20)]
NO_FOLDS: dict[str, tuple[Corpus, SplitParams, str]] = {
    "few groups": (make_corpus([n % 3 for n in range(20)], TWO), fold("1/5"), r"data\.split\.fold.* 5 .* 3\b"),
    "one group outside": (make_corpus(3 * ["a"] + 4 * ["b"] + 13 * ["c"], TWO), fold("1/2"), r"data\.split\.fold"),
    "a class in one text": (
        make_corpus([*(max(n, 9) for n in range(50))], 10 * [1] + 40 * [0]), fold("1/5"), r'"equivalent".*same fold',
    ),
    "times": (
        make_corpus(range(20), TWO, replace(TASK, name="custom")), fold("1/5", type="datetime"), r"data\.split\.type",
    ),
    "validation without groups": (
        make_corpus(range(20), TWO, groups=5 * [None, "a", "b", "c"]), fold("1/2"), r"data\.split\.column",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", NO_FOLDS)
def test_folds_that_cannot_be_made_are_rejected_in_one_line(fault: str) -> None:
    corpus, split, message = NO_FOLDS[fault]
    with pytest.raises(UserError, match=message):
        for number in (1, 2):
            take_fold(corpus, split.model_copy(update={"fold": split.fold.replace("1/", f"{number}/")}))


def test_each_row_is_predicted_once_and_finished_folds_are_reused(
    toy: Project, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    overrides = ["train.lr=5e-4"]
    group = f"folds3-{group_name(overrides, FOLD, (*STAGES, 'baseline'))}"
    for number in "12":
        experiment(toy, f"{group}-{number}", data__split__fold=f"{number}/3", train__lr="5e-4")
    restore(toy)
    folds(3, overrides, jobs=1)
    assert "2 of 3 runs are finished" in caplog.messages
    assert toy.git("status", "--porcelain") == "", "the workspace is unchanged"
    rows = pd.read_csv(Path("folds", group, "predictions.csv"))
    assert rows["idx"].tolist() == list(range(0, 600, 2))
    assert rows["fold"].tolist() == 100 * [1, 2, 3]
    assert rows["sentence1"].tolist() == [f"test pair {number}" for number in range(300)]
    assert ((rows["logit_1"] > rows["logit_0"]) == rows["prediction"]).all()
    scores = pd.read_csv(Path("folds", group, "scores.csv"), index_col=0)
    accuracy = accuracy_score(rows["label"], rows["prediction"])
    assert scores.loc["accuracy", "value"] == pytest.approx(accuracy)
    assert scores.loc["accuracy", "low"] < accuracy < scores.loc["accuracy", "high"]
    assert scores.loc["accuracy", "fold mean"] == pytest.approx(accuracy)
    for model in ("linear", "frozen"):
        simpler = read_side(model).runs[0].predictions["test"]  # In the workspace, test has the rows of all folds.
        assert scores.loc["accuracy", model] == pytest.approx(simpler.score("accuracy"))
    printed = capsys.readouterr().out
    assert re.search(rf"^out-of-fold accuracy +{100 * accuracy:.2f} ", printed, re.M)
    assert re.search(r"linear model .* out-of-fold accuracy \(95% confidence interval: -\d", printed)
    folds(3, overrides, jobs=1)
    assert "all 3 runs are finished" in caplog.messages
    assert capsys.readouterr().out == printed


def test_the_frozen_model_is_cross_validated_without_training(toy: Project, caplog: pytest.LogCaptureFixture) -> None:
    toy.set("baseline.frozen", "false")  # in other runs
    folds(3, [], jobs=1, model="frozen")
    assert "'baseline'" in caplog.text and "'train'" not in caplog.text
    [directory] = Path("folds").glob("frozen-folds3-*")
    rows = pd.read_csv(directory / "predictions.csv")
    assert rows["prediction"].tolist() == read_side("frozen").runs[0].predictions["test"].predicted.tolist()
    assert {"linear", "majority"} < set(pd.read_csv(directory / "scores.csv").columns)
    find_suspects(directory.name)
    assert (directory / "suspects.csv").is_file()
    toy.git("checkout", "--quiet", ".")


def test_folds_without_a_class_are_not_compared_with_the_linear_model_by_f1(
    toy: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of three folds has no pair of class 1."""
    group = f"folds3-{group_name([], FOLD, (*STAGES, 'baseline'))}"
    for number in "123":
        experiment(toy, f"{group}-{number}", data__split__fold=f"{number}/3")
    restore(toy)
    toy.set("evaluate.metrics", "[f1]")
    folds(3, [], jobs=1)
    toy.git("checkout", "--quiet", ".")
    assert re.search("^Warning: .* linear model.* F1 ", capsys.readouterr().out, re.M)
