"""Cross-validation: `data.split.fold`, and `python -m pipeline.folds` with real experiments of a toy pipeline."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from conftest import Project, data_params
from sklearn.metrics import accuracy_score
from toy import experiment, restore

from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.experiments.comparison import compare
from pipeline.experiments.cross_validation import describe_gain, run_folds
from pipeline.experiments.gate import decide
from pipeline.experiments.identity import FOLD_KEY, identity, load_overridden_params
from pipeline.experiments.render import as_gate, as_text
from pipeline.experiments.revisions import group_commits, read_runs
from pipeline.experiments.sides import OUT_OF_FOLD, Side, describe_degenerate_runs, read_side
from pipeline.params import SplitParams
from pipeline.sources.corpus import Corpus
from pipeline.sources.demo import DEMO, load_demo
from pipeline.sources.folds import take_fold
from pipeline.sources.splits import GROUP


def fold(text: str, **changes: object) -> SplitParams:
    return data_params(task="demo").split.model_copy(update={"fold": text, **changes})


TASK = replace(DEMO, text_columns=["text"], predicted_splits=["validation"])


def make_corpus(texts: Sequence[object], labels: list[Any], task: Task = TASK, **columns: list[Any]) -> Corpus:
    """Return a corpus whose validation split has every fourth row."""
    rows = pd.DataFrame({"text": map(str, texts), "label": labels, **columns}, [f"line {n}" for n in range(len(texts))])
    splits = {"train": rows[np.arange(len(rows)) % 4 > 0], "validation": rows[::4]}
    return Corpus(task, {name: part.assign(idx=np.arange(len(part))) for name, part in splits.items()}, {})


def splits_by_place(corpus: Corpus) -> dict[str, str]:
    return {place: split for split, rows in corpus.splits.items() for place in rows.index}


def test_each_labeled_row_is_in_one_fold_and_test_is_not_used() -> None:
    corpus = load_demo(data_params(task="demo"))
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
    for columns, together in (({}, 2), ({GROUP: authors}, 4)):
        split_by_place = splits_by_place(take_fold(make_corpus(texts, labels, **columns), fold("1/3")))
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
        make_corpus(range(20), TWO, **{GROUP: 5 * [None, "a", "b", "c"]}), fold("1/2"), r"data\.split\.column",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", NO_FOLDS)
def test_folds_that_cannot_be_made_are_rejected_in_one_line(fault: str) -> None:
    corpus, split, message = NO_FOLDS[fault]
    with pytest.raises(UserError, match=message):
        for number in (1, 2):
            take_fold(corpus, split.model_copy(update={"fold": split.fold.replace("1/", f"{number}/")}))


def folds_table(capsys: pytest.CaptureFixture[str], k: int, *overrides: str) -> tuple[str, str]:
    """Run folds and return the name of the group and the table."""
    run_folds(k, list(overrides), jobs=1)
    printed = capsys.readouterr().out
    [group] = re.findall(r"pipeline\.compare (\S+) OTHER", printed)
    return group, printed


def test_each_row_is_predicted_once_and_finished_folds_are_reused(
    toy: Project, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    overrides = ["train.lr=5e-4", "evaluate.metrics=[accuracy]"]
    group = f"folds-{identity(overrides, FOLD_KEY)}-2"
    experiment(toy, f"{group}-1", data__split__fold="1/2", train__lr="5e-4", evaluate__metrics="[accuracy]")
    restore(toy)
    group, printed = folds_table(capsys, 2, *overrides)
    assert f"{group}: 1 of 2 runs are finished" in caplog.messages
    assert list(group_commits(group)) == [1, 2]
    assert toy.git("status", "--porcelain") == "", "the workspace is unchanged"
    rows = pq.read_table(Path("folds", group, "predictions.parquet")).to_pydict()
    assert rows["idx"] == [2 * number for number in range(300)]
    assert Counter(rows["fold"]) == {1: 150, 2: 150}
    accuracy = accuracy_score(rows["label"], rows["prediction"])
    [linear] = read_runs("baseline")  # In the workspace, test has the same rows as both folds together.
    [row] = re.findall("^out-of-fold accuracy .*", printed, re.M)
    assert row.split()[2] == f"{100 * accuracy:.2f}"
    assert row.split()[-2] == f"{100 * linear.predictions['test'].is_correct.mean():.2f}"
    gain = 100 * (accuracy - linear.predictions["test"].is_correct.mean())
    assert f"Difference from the linear model: {gain:+.1f} points of out-of-fold accuracy (95%" in printed
    scores = json.loads(Path("folds", group, "scores.json").read_text())
    assert scores["n"] == 300
    assert list(scores["metrics"]) == ["accuracy"], "the metrics of this run, and not those of params.yaml"
    entry = scores["metrics"]["accuracy"]
    assert entry["value"] == pytest.approx(accuracy, abs=1e-6)
    assert entry["low"] < accuracy < entry["high"]
    assert np.mean(entry["folds"]) == pytest.approx(accuracy, abs=1e-6)

    assert folds_table(capsys, 2, *overrides) == (group, printed), "a new run would be logged and take seconds"


def test_a_fold_group_has_a_single_seed_and_does_not_set_the_fold(toy: Project) -> None:
    assert identity(["train.seed=2"], FOLD_KEY) != identity(["train.seed=3"], FOLD_KEY)
    with pytest.raises(UserError, match=r"data\.split\.fold is chosen for each run\. Remove it\."):
        run_folds(2, ["data.split.fold=1/2"], 1)
    with pytest.raises(UserError, match=r"predict\.max_samples must be null"):
        run_folds(2, ["predict.max_samples=10"], 1)


@pytest.mark.parametrize("name", ["fold", "logit_0", "logit_12"])
def test_a_text_column_with_the_name_of_a_column_of_the_predictions_is_rejected(name: str, toy: Project) -> None:
    with pytest.raises(UserError, match=rf'^predictions\.parquet has a column "{name}" of its own\. Rename'):
        run_folds(2, ["data.task=custom", f"data.text_column_names=[{name}]"], 1)


def test_a_fold_that_is_left_in_params_yaml_does_not_change_the_group(toy: Project) -> None:
    """DVC writes it there while it sets up an experiment, and may be killed before it restores the file."""
    expected = identity([], FOLD_KEY)
    toy.set("data.split.fold", "1/3")
    try:
        assert identity([], FOLD_KEY) == expected
    finally:
        restore(toy)


def test_a_key_that_only_changes_how_results_are_shown_does_not_change_the_group(toy: Project) -> None:
    assert identity(["evaluate.metrics=[f1]", "data.name=pairs"]) == identity([])
    assert identity(["train.metric_for_best_model=f1"]) != identity([])


LOW, HIGH, TWO = "folds-11111111-3", "folds-22222222-3", "folds-11111111-2"


@pytest.fixture(scope="module")
def toy_with_folds(module_toy: Project) -> Project:
    """A toy project with the fold groups LOW and HIGH of three folds, and TWO of two folds."""
    for group, k, lr in ((LOW, 3, "1e-4"), (HIGH, 3, "2.9e-3"), (TWO, 2, "1e-4")):
        for number in range(1, k + 1):
            experiment(module_toy, f"{group}-{number}", data__split__fold=f"{number}/{k}", train__lr=lr)
    restore(module_toy)
    return module_toy


def test_folds_without_a_class_are_not_compared_with_the_linear_model_by_f1(
    toy_with_folds: Project, toy: Project
) -> None:
    """A fold of LOW has no pair of class 1."""
    gains = {}
    for metric in ("accuracy", "f1"):
        params = load_overridden_params([f"evaluate.metrics=[{metric}]"])
        gains[metric] = describe_gain(read_side(LOW, params, linear=True), read_side(LOW, params))
    assert gains["accuracy"].startswith("Difference from the linear model: ")
    assert "F1 is not defined" in gains["f1"]


def test_two_fold_groups_are_compared_row_by_row(toy_with_folds: Project, toy: Project) -> None:
    a, b = read_side(LOW), read_side(HIGH)
    comparison = compare(a, b)
    text = as_text(comparison)
    assert re.search(r"^Verdict: B is better: \+\d+\.\d points of out-of-fold accuracy", text, re.M)
    assert "(300 out-of-fold pairs), for training and for scoring" in text
    assert re.search(rf"^A: {LOW}\n +task:demo\|.*\|out-of-fold:300@", text, re.M)
    assert re.search(r"^train\.lr +0\.0001 +0\.0029$", text, re.M)
    assert "data.split" not in text
    right = [side.runs[0].predictions["out-of-fold"].is_correct for side in (a, b)]
    judged = comparison.verdict_comparison
    assert len(judged.fixed) == np.sum(~right[0] & right[1])
    assert comparison.difference.value == pytest.approx(right[1].mean() - right[0].mean())
    decision = decide(comparison, 1)
    assert decision.outcome == "passes"
    assert "two models only" not in as_gate(comparison, decision)


def test_a_fold_is_degenerate_if_its_validation_split_has_the_same_prediction(
    toy_with_folds: Project, toy: Project
) -> None:
    side = read_side(LOW)
    assert describe_degenerate_runs(side, OUT_OF_FOLD) == ""

    def predict_class_1(*splits: str) -> Side:
        """Return the fold group, with the prediction 1 for all examples of these splits of the second fold."""
        first, second, third = side.folds
        predictions = dict(second.predictions)
        for name in splits:
            predictions[name] = replace(predictions[name], predicted=np.ones_like(predictions[name].labels))
        return side._replace(folds=[first, second._replace(predictions=predictions), third])

    assert describe_degenerate_runs(predict_class_1("test"), OUT_OF_FOLD) == "", "a small fold may have one prediction"
    description = describe_degenerate_runs(predict_class_1("test", "validation"), OUT_OF_FOLD)
    assert f"{LOW} is degenerate in 1 of 3 runs ({LOW}-2)" in description


def test_a_fold_group_is_only_compared_with_the_same_folds(toy_with_folds: Project, toy: Project) -> None:
    with pytest.raises(UserError, match=rf"{LOW} is a fold group, but main is not\. .*pipeline\.folds"):
        compare(read_side("main"), read_side(LOW))
    different = rf"{LOW}-1 and {TWO}-1 were scored on different test pairs\. {LOW}-1 has 100, and {TWO}-1 has 150\."
    with pytest.raises(UserError, match=different):
        compare(read_side(LOW), read_side(TWO))
    toy.run("dvc", "exp", "remove", f"{TWO}-2")
    with pytest.raises(UserError, match=rf"{TWO}: these folds have not run: 2/2\."):
        read_side(TWO)
