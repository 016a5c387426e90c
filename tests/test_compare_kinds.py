"""`compare` works for every type of task. Its inputs are prediction files like those that predict writes."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.evaluation.metrics import logits_to_predictions, logits_to_probabilities, scores
from pipeline.evaluation.predictions import Predictions, load_predictions
from pipeline.experiments.comparison import compare
from pipeline.experiments.render import as_json, as_markdown, as_text
from pipeline.experiments.revisions import Run
from pipeline.experiments.sides import Side, describe_degenerate_runs
from pipeline.sources.glue import glue_task

N = 300
MULTI_LABEL = Task(
    name="custom", problem_type="multi_label_classification", text_columns=["text"], labels=["red", "green", "blue"],
    metrics=["f1_micro", "f1_macro", "accuracy"], metric_for_best_model="f1_micro",
    predicted_splits=["validation", "test"],
)  # fmt: skip
SIGNATURE = dict.fromkeys(("task", "metrics", "checkpoint", "code"), "-")
RMSE = dataclasses.replace(glue_task("stsb"), metrics=["rmse"], metric_for_best_model="rmse")
TASKS = {
    "multi-class": glue_task("mnli"),
    "binary": glue_task("cola"),
    "multi-label": MULTI_LABEL,
    "regression": glue_task("stsb"),
    "regression by RMSE": RMSE,
}


def noisy_logits(task: Task, labels: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the logits of a model that knows the labels up to some noise. Shape (n, outputs)."""
    if task.problem_type == "regression":
        return (labels + noise[:, 0])[:, None]
    known = np.eye(task.outputs)[labels] if labels.ndim == 1 else 2.0 * labels - 1
    return known + noise[:, : task.outputs]


@pytest.fixture
def make_side(tmp_path: Path) -> Callable[..., Side]:
    def make(task: Task, name: str, noise_scale: float, seeds: tuple[int, ...] = (1,)) -> Side:
        """Return a side with one run per seed. Its predictions are the labels with some noise."""
        runs = []
        for seed in seeds:
            directory = tmp_path / f"{name}-{seed}"
            directory.mkdir()
            for number, split in enumerate(task.predicted_splits):
                label_rng, noise_rng = np.random.default_rng(number), np.random.default_rng([seed, number])
                labels: np.ndarray = label_rng.integers(2, size=(N, 3))
                if task.problem_type == "single_label_classification":
                    labels = label_rng.integers(task.outputs, size=N)
                elif task.problem_type == "regression":
                    labels = label_rng.uniform(0, 5, size=N)
                logits = noisy_logits(task, labels, noise_scale * noise_rng.standard_normal((N, 3)))
                columns = {
                    "idx": np.arange(N, dtype=np.int32),
                    "prediction": logits_to_predictions(task.problem_type, logits),
                }
                if split in task.scored_splits:
                    columns["label"] = labels
                columns |= {f"logit_{output}": logits[:, output] for output in range(task.outputs)}
                Dataset.from_dict(columns).to_parquet(directory / f"{split}.parquet")
            texts = [(f"text {row}",) * len(task.text_columns) for row in range(N)]
            runs.append(
                Run(
                    name=f"{name}-{seed}", commit=None, parameters={"train.seed": seed, "train.lr": noise_scale},
                    code="0" * 16, environment={}, task=task, signature=SIGNATURE | {"seed": str(seed)},
                    predictions={split: load_predictions(directory, split, task) for split in task.scored_splits},
                    texts=dict.fromkeys(task.scored_splits, texts),
                )
            )  # fmt: skip
        return Side(name, runs)

    return make


@pytest.mark.parametrize("task_type", TASKS)
def test_two_runs_can_be_compared_in_every_task_type(task_type: str, make_side: Callable[..., Side]) -> None:
    task = TASKS[task_type]
    a, b = make_side(task, "a", 1.4), make_side(task, "b", 0.5, (2,))
    comparison = compare(a, b)
    assert comparison.splits.keys() == set(task.scored_splits), "splits without labels are neither scored nor compared"
    for split, result in comparison.splits.items():
        for side, side_scores in ((a, result.a), (b, result.b)):
            run = side.runs[0].predictions[split]
            assert side_scores == pytest.approx(scores(task.metrics, run.labels, run.predicted, run.probability))
    split_comparison = comparison.splits[task.verdict_split]
    before, after = (side.runs[0].predictions[task.verdict_split] for side in (a, b))
    if task.problem_type == "regression":
        nearer = np.abs(after.predicted - after.labels) < np.abs(before.predicted - before.labels)
        fixed, broken = nearer, ~nearer
        gains = [
            abs(float(example.label) - example.a) - abs(float(example.label) - example.b)
            for example in split_comparison.fixed
        ]
        assert gains == pytest.approx(sorted(gains, reverse=True), abs=1e-4), "the largest gain comes first"
    else:
        fixed, broken = ~before.is_correct & after.is_correct, before.is_correct & ~after.is_correct
        confidences = [example.b for example in split_comparison.fixed]
        assert confidences == sorted(confidences, reverse=True)
        assert all(0 <= example.a <= 1 for example in split_comparison.fixed)
    assert {example.idx for example in split_comparison.fixed} == set(np.flatnonzero(fixed))
    assert {example.idx for example in split_comparison.broken} == set(np.flatnonzero(broken))

    text, markdown = as_text(comparison), as_markdown(comparison)
    assert comparison.better_side is None and comparison.verdict.startswith("these two models differ: ")
    on_validation = "test" not in task.scored_splits
    assert f" {task.verdict_split} " in comparison.verdict
    for output in (text, markdown):
        assert ("validation scores are used instead" in output) == on_validation
        assert ("probability" in output) == (task.problem_type != "regression")
    first = next(line.split()[0] for line in text.splitlines() if line.startswith(tuple(task.scored_splits)))
    assert first == task.verdict_split, "the split that decides the verdict comes first"
    assert (
        json.loads(as_json(comparison))["splits"][task.verdict_split]["fixed"][0]["label"]
        == split_comparison.fixed[0].label
    )
    assert compare(a, a).verdict.startswith("no difference: the predictions are identical")


@pytest.mark.parametrize("task_type", TASKS)
def test_seed_groups_can_be_compared_in_every_task_type(task_type: str, make_side: Callable[..., Side]) -> None:
    task = TASKS[task_type]
    a, b = make_side(task, "a", 1.4, (1, 2, 3)), make_side(task, "b", 0.5, (1, 2, 3))
    comparison = compare(a, b)
    assert comparison.better_side == "B" and comparison.verdict.startswith("B is better: "), "a lower error is better"
    swapped = compare(b, a)
    assert swapped.better_side == "A" and swapped.verdict.startswith("B is worse: ")
    split_comparison = comparison.splits[task.verdict_split]
    runs = [run.predictions[task.verdict_split] for run in b.runs]
    for example in split_comparison.fixed:
        label = runs[0].labels[example.idx]
        if task.problem_type == "regression":
            expected = np.mean([run.predicted[example.idx] for run in runs])
            assert example.label == f"{label:g}"
        else:
            mean = np.mean([run.probability[example.idx] for run in runs if run.probability is not None], axis=0)
            factors = [p if on else 1 - p for p, on in zip(mean, label, strict=True)] if label.ndim else [mean[label]]
            expected = np.prod(factors)
            assert expected > (0.125 if label.ndim else 1 / task.outputs)
        assert example.b == pytest.approx(expected, abs=2e-6)
    if task.problem_type != "regression":
        confidences = [example.b for example in split_comparison.fixed]
        assert confidences and confidences == sorted(confidences, reverse=True)
    equal = compare(a, make_side(task, "c", 1.4, (4, 5, 6)))
    assert equal.better_side is None
    assert equal.verdict.startswith(f"no evidence of a difference in {task.verdict_split} ")


def test_a_single_example_is_not_evidence(make_side: Callable[..., Side], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_compare_kinds.N", 1)
    task = TASKS["multi-class"]
    a, b = make_side(task, "a", 9.0, (1, 2, 3)), make_side(task, "b", 0.1, (1, 2, 3))
    assert not all(run.predictions[task.verdict_split].is_correct.all() for run in a.runs)
    comparison = compare(a, b)
    assert comparison.better_side is None
    assert comparison.verdict.startswith("no evidence of a difference")


def test_an_example_with_several_labels_lists_them(make_side: Callable[..., Side]) -> None:
    comparison = compare(make_side(MULTI_LABEL, "a", 1.4), make_side(MULTI_LABEL, "b", 0.5)).splits["test"]
    labels = {example.label for example in comparison.fixed}
    assert {"none", "red", "red, green", "red, green, blue"} <= labels


def test_two_runs_may_differ_even_if_they_get_the_same_number_right(make_side: Callable[..., Side]) -> None:
    """Always predicting one class is right equally often, but does not correlate with the labels."""
    task = glue_task("cola")
    a, b = make_side(task, "a", 1.0), make_side(task, "b", 1.0, (2,))
    labels = np.array([1] * 200 + [0] * 100)
    constant, skilled = np.ones(N, dtype=int), np.array([1] * 150 + [0] * 50 + [0] * 50 + [1] * 50)
    for side, values in ((a, constant), (b, skilled)):
        validation = side.runs[0].predictions["validation"]
        changed = dataclasses.replace(validation, labels=labels, predicted=values)
        side.runs[0].predictions["validation"] = changed
    split_comparison = compare(a, b).splits["validation"]
    assert len(split_comparison.fixed) == len(split_comparison.broken) == 50
    assert compare(a, b).verdict.startswith("these two models differ")


@pytest.mark.parametrize("task_type", ["binary", "multi-label"])
def test_a_few_changed_examples_are_not_evidence(task_type: str, make_side: Callable[..., Side]) -> None:
    """Four examples improve and none gets worse, so the confidence interval alone excludes 0."""
    task = TASKS[task_type]
    a = make_side(task, "a", 0.5)
    original = a.runs[0].predictions[task.verdict_split]
    predicted, wrong = original.predicted.copy(), np.flatnonzero(~original.is_correct)[:4]
    predicted[wrong] = original.labels[wrong]
    better = dataclasses.replace(original, predicted=predicted, logits=original.logits + 1e-9)
    run = a.runs[0]._replace(name="b", predictions=a.runs[0].predictions | {task.verdict_split: better})
    comparison = compare(a, Side("b", [run]))
    assert comparison.splits[task.verdict_split].difference[task.metrics[0]].low > 0
    assert comparison.verdict.startswith("no evidence of a difference")
    assert comparison.verdict.endswith(f", because A and B differ on 4 {task.noun}, and at least 10 are needed")


def test_models_that_never_reach_the_threshold_are_compared_by_their_ranking(make_side: Callable[..., Side]) -> None:
    """Both models always predict the majority class, as with rare positives, but one ranks the examples better."""
    task = dataclasses.replace(TASKS["binary"], metrics=["roc_auc"])

    def with_logits(examples: Predictions, logits: np.ndarray) -> Predictions:
        return dataclasses.replace(
            examples,
            logits=logits,
            predicted=logits_to_predictions(task.problem_type, logits),
            probability=logits_to_probabilities(task.problem_type, logits),
        )

    a, b = make_side(task, "a", 2.0, range(5)), make_side(task, "b", 0.5, range(5))
    for run in (*a.runs, *b.runs):
        for split, examples in run.predictions.items():
            run.predictions[split] = with_logits(examples, examples.logits - np.array([0, 12]))
            assert run.predictions[split].predicted.mean() < 0.02
    assert compare(a, b).verdict.startswith("B is better")
    assert not compare(a, b).degenerate
    [*_, last] = b.runs
    constant = np.tile([2.0, -2.0], (N, 1)) + 1e-8 * np.random.default_rng(0).standard_normal((N, 2))
    last.predictions["validation"] = with_logits(last.predictions["validation"], constant)
    assert describe_degenerate_runs(b, "validation").startswith("b is degenerate in 1 of 5 runs (b-4)")


@pytest.mark.parametrize(("unit", "number"), [(1e-8, r"\d\.\d+e-\d\d"), (1e6, r"\d,\d\d\d,\d\d\d")])
def test_small_and_large_predictions_are_shown_with_their_digits(
    unit: float, number: str, make_side: Callable[..., Side]
) -> None:
    a, b = make_side(RMSE, "a", 1.4), make_side(RMSE, "b", 0.5, (2,))
    for run in (*a.runs, *b.runs):
        for split, examples in run.predictions.items():
            run.predictions[split] = dataclasses.replace(
                examples, labels=examples.labels * unit, predicted=examples.predicted * unit
            )
    assert re.search(rf"predicted {number} in A, {number} in B", as_text(compare(a, b)))
    assert re.search(rf"\| {number} \| {number} \|", as_markdown(compare(a, b)))
    assert not compare(a, b).degenerate


def test_a_changed_label_is_not_a_changed_example_if_exact_matches_are_compared(make_side: Callable[..., Side]) -> None:
    """Of 30 examples that change, only four become completely right."""
    task = dataclasses.replace(MULTI_LABEL, metrics=["accuracy"])
    a = make_side(task, "a", 0.5)
    original = a.runs[0].predictions["test"]
    predicted, wrong = original.predicted.copy(), np.flatnonzero(~original.is_correct)[:30]
    predicted[wrong[:4]] = original.labels[wrong[:4]]
    predicted[wrong[4:]] = 1 - original.labels[wrong[4:]]
    better = dataclasses.replace(original, predicted=predicted, logits=original.logits + 1e-9)
    run = a.runs[0]._replace(name="b", predictions=a.runs[0].predictions | {"test": better})
    assert compare(a, Side("b", [run])).verdict_comparison.changed == 4


def test_a_detectable_difference_is_only_stated_if_it_is_known(make_side: Callable[..., Side]) -> None:
    task = TASKS["multi-class"]
    few, many = ([make_side(task, f"{noise}-{n}", noise, range(n)) for noise in (0.9, 1.1)] for n in (4, 5))
    assert compare(*few).detectable is None
    assert compare(*many).detectable
    assert "is detected about 80% of the time" in as_text(compare(*many))


def with_labels(side: Side, split: str, labels: np.ndarray) -> Side:
    [run] = side.runs
    changed = dataclasses.replace(run.predictions[split], labels=labels)
    return Side(side.name, [run._replace(predictions=run.predictions | {split: changed})])


def test_intervals_that_may_be_too_narrow_are_named(make_side: Callable[..., Side]) -> None:
    task = dataclasses.replace(TASKS["multi-class"], name="custom", metrics=["balanced_accuracy"])
    sides = make_side(task, "a", 0.9), make_side(task, "b", 0.9, (2,))
    split, labels = task.verdict_split, np.arange(N) % 2
    labels[:19] = 2
    caveats = compare(*(with_labels(side, split, labels) for side in sides)).caveats
    assert any("may be too narrow" in text and f'"{task.labels[2]}"' in text for text in caveats)
    assert not any("too narrow" in text for text in compare(*sides).caveats)
    for side in sides:
        side.runs[0].parameters["data.split"] = {"type": "group"}
    assert any("in one group (data.split)" in text for text in compare(*sides).caveats)


def test_a_metric_without_a_perfect_score_is_rejected(make_side: Callable[..., Side]) -> None:
    task = TASKS["binary"]
    sides = (make_side(task, "a", 0.9), make_side(task, "b", 0.9, (2,)))
    only_negatives = np.zeros(N, dtype=int)
    with pytest.raises(UserError, match=r"evaluate\.metrics"):
        compare(*(with_labels(side, task.verdict_split, only_negatives) for side in sides))
