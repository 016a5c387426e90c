"""Comparisons: the verdict, the gate, what is printed next to them, and the revisions of a real repository."""

import html
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Project
from toy import HOSTILE, copy_of, experiment, restore

from pipeline.compare import main
from pipeline.core.messages import UserError
from pipeline.core.task import LEAKAGE, Task
from pipeline.evaluation.intervals import difference, jackknife
from pipeline.evaluation.predictions import Predictions, pool
from pipeline.experiments.comparison import Comparison, compare
from pipeline.experiments.comparison_text import as_json, as_markdown, as_text, notes
from pipeline.experiments.runs import OUT_OF_FOLD, Run, Side, read_side
from pipeline.modeling.outputs import logits_to_predictions, logits_to_probabilities
from pipeline.sources.glue import glue_task

N = 200
THREE, FIVE = range(3), range(5)
MULTI_LABEL = Task(
    name="custom", problem_type="multi_label_classification", text_columns=["text"], labels=["red", "green", "blue"],
    metrics=["f1_micro", "f1_macro", "accuracy"], metric_for_best_model="f1_micro",
    predicted_splits=["validation", "test"],
)  # fmt: skip
CLASSES = replace(MULTI_LABEL, problem_type="single_label_classification", metrics=["accuracy", "f1_macro"])
TASKS = {
    "classes": CLASSES, "pairs": glue_task("mrpc"), "no test labels": glue_task("cola"), "multi-label": MULTI_LABEL,
    "regression": glue_task("stsb"), "an error": replace(glue_task("stsb"), metrics=["rmse"]),
}  # fmt: skip
Change = Callable[[Predictions], dict[str, Any]]


def from_logits(task: Task, labels: Any, logits: Any, **columns: Any) -> Predictions:
    n = len(labels)
    rows = pd.DataFrame(
        {name: [f"{name} {row}" for row in range(n)] for name in task.text_columns} | {LEAKAGE: [0] * n}
    )
    predicted = logits_to_predictions(task.problem_type, logits)
    probability = logits_to_probabilities(task.problem_type, logits)
    return Predictions(np.arange(n), labels, predicted, logits, probability, rows.assign(**columns))


def predictions(task: Task, number: int, seed: int, noise: float, n: int = N) -> Predictions:
    """Return the predictions of a model that knows the labels up to some noise."""
    label_random, random = np.random.default_rng(number), np.random.default_rng([seed, number])
    labels: Any = label_random.integers(2, size=(n, task.outputs))
    known: Any = 2.0 * labels - 1
    if task.is_single_label:
        labels = label_random.integers(task.outputs, size=n)
        known = np.eye(task.outputs)[labels]
    elif task.is_regression:
        labels = label_random.uniform(0, 5, size=n)
        known = labels[:, None]
    return from_logits(task, labels, known + noise * random.standard_normal((n, task.outputs)))


def make(task: Task, name: str, noise: float, seeds: Any = (1,), **origin: Any) -> Side:
    """Return a side with one run per seed, whose predictions are the labels with some noise."""
    runs = []
    for seed in seeds:
        scored = {split: predictions(task, i, seed, noise) for i, split in enumerate(task.scored_splits)}
        runs.append(Run(f"{name}-{seed}", task, {"train.seed": seed, "train.lr": noise, **origin}, scored))
    return Side(name, runs)


def changed(side: Side, split: str, change: Change, name: str = "b") -> Side:
    """Return a side with other predictions of a split in all runs."""
    runs = []
    for run in side.runs:
        changes = change(run.predictions[split])
        runs.append(replace(run, predictions=run.predictions | {split: replace(run.predictions[split], **changes)}))
    return Side(name, runs)


def printed_notes(a: Side, b: Side) -> str:
    """Return the notes as they are printed, after checking that each format has all of them."""
    result = compare(a, b)
    text = as_text(result).partition("\nVerdict: ")[2].partition("\n")[2]
    for note in notes(result):
        assert note in text and note in html.unescape(as_markdown(result)) and note in read_json(result)["notes"]
    return text


def read_json(result: Comparison) -> Any:
    return json.loads(as_json(result), parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


@pytest.mark.parametrize("kind", TASKS)
def test_two_runs_of_every_kind_of_task(kind: str) -> None:
    task = TASKS[kind]
    a, b = make(task, "a", 1.4), make(task, "b", 0.5)
    result, split = compare(a, b), task.verdict_split
    before, after = (side.runs[0].predictions[split] for side in (a, b))
    for score in result.scores.itertuples():
        sides = [side.runs[0].predictions[score.split].score(score.metric) for side in (a, b)]
        assert [score.a, score.b, score.value] == pytest.approx([*sides, sides[1] - sides[0]])
    assert set(result.scores["split"]) == set(task.scored_splits) and result.split == split
    quality = [run.is_correct if task.labels else -np.abs(run.predicted - run.labels) for run in (before, after)]
    assert set(result.fixed["idx"]) == set(np.flatnonzero(quality[1] > quality[0]))
    assert set(result.broken["idx"]) == set(np.flatnonzero(quality[1] < quality[0]))
    if task.labels:
        assert result.fixed["b"].is_monotonic_decreasing, "the examples that B is most confident about come first"
        assert result.broken["b"].is_monotonic_increasing
    else:
        row = result.fixed.iloc[0]
        gains = np.abs(before.predicted - before.labels) - np.abs(after.predicted - after.labels)
        assert (row["idx"], row["a"]) == (gains.argmax(), before.predicted[gains.argmax()])
    assert result.better is None and result.verdict.startswith("these two models differ"), "another seed may differ"
    printed = printed_notes(a, b)
    assert "pipeline.seeds --n 5" in printed
    assert f" {split} " in result.verdict
    content = read_json(result)
    assert len(content["fixed"]) == len(result.fixed) > 3 and content["scores"][0]["detectable"] is None
    assert content["fixed"][0]["texts"] == [f"{name} {content['fixed'][0]['idx']}" for name in task.text_columns]


@pytest.mark.parametrize("kind", TASKS)
def test_seed_groups_of_every_kind_of_task(kind: str) -> None:
    task = TASKS[kind]
    a, b, equal = make(task, "a", 1.4, FIVE), make(task, "b", 0.5, FIVE), make(task, "c", 1.4, range(5, 10))
    result, swapped, no_evidence = compare(a, b), compare(b, a), compare(a, equal)
    assert result.better == "B" and result.verdict.startswith("B is better"), "a lower error is better"
    assert swapped.better == "A" and swapped.verdict.startswith("B is worse")
    assert no_evidence.better is None and no_evidence.verdict.startswith("no evidence")
    assert [entry.gate(0.01) for entry in (result, swapped, no_evidence)] == ["passes", "fails", "undecided"]
    assert swapped.gate(1000) == "passes"
    assert result.differences == {"train.lr": (1.4, 0.5)}
    assert no_evidence.differences == {"train.seed": ("0, 1, 2, 3, 4", "5, 6, 7, 8, 9")}
    split, metric = task.verdict_split, task.metrics[0]
    if task.labels:
        right = [np.mean([run.predictions[split].is_correct for run in side.runs], axis=0) for side in (a, b)]
        assert set(result.fixed["idx"]) == set(np.flatnonzero(right[1] > right[0]))
        assert set(result.broken["idx"]) == set(np.flatnonzero(right[1] < right[0]))
    sides = [np.stack([jackknife(metric, run.predictions[split]) for run in side.runs]) for side in (a, b, equal)]
    for comparison, other, same_seeds in ((result, sides[1], True), (no_evidence, sides[2], False)):
        expected = difference(sides[0], other, same_seeds=same_seeds)
        assert comparison.scores.loc[0, list(expected._fields)].to_dict() == expected._asdict()


def test_from_five_seeds_on_it_says_which_difference_is_detected() -> None:
    a, b = make(CLASSES, "a", 0.9, THREE), make(CLASSES, "b", 1.0, THREE)
    assert "detected" not in as_text(compare(a, b)) and printed_notes(a, b) == ""
    a, b = make(CLASSES, "a", 0.9, FIVE), make(CLASSES, "b", 1.0, FIVE)
    detectable = compare(a, b).scores["detectable"][0]
    assert detectable and re.search(rf"^test accuracy .* {100 * detectable:.2f}$", as_text(compare(a, b)), re.M)


def test_equal_predictions_are_no_difference_and_few_changes_are_no_evidence() -> None:
    """Four examples improve and none gets worse, so the interval alone excludes 0."""
    a = make(CLASSES, "a", 0.5)
    assert compare(a, a).verdict.startswith("no difference") and compare(a, a).gate(0) == "passes"
    original = a.runs[0].predictions["test"]
    predicted, wrong = original.predicted.copy(), np.flatnonzero(~original.is_correct)[:4]
    predicted[wrong] = original.labels[wrong]
    b = changed(a, "test", lambda test: {"predicted": predicted, "logits": test.logits + 1e-9})
    result = compare(a, b)
    assert result.scores["low"][0] > 0 and result.better is None
    assert re.search(r"^no evidence .*\b4 texts\b.*\b10\b", result.verdict) and result.gate(0.5) == "undecided"


def test_models_that_never_reach_the_threshold_are_compared_by_their_ranking() -> None:
    task = replace(TASKS["no test labels"], metrics=["roc_auc"])

    def never_positive(run: Predictions) -> dict[str, Any]:
        logits = run.logits - np.array([0, 12])
        return vars(from_logits(task, run.labels, logits))

    a, b = (changed(make(task, "x", noise, THREE), "validation", never_positive, "x") for noise in (2.0, 0.5))
    assert all(run.predictions["validation"].predicted.mean() < 0.02 for run in a.runs)
    result = compare(a, b)
    assert result.better == "B" and not any("same prediction" in note for note in notes(result))


def test_sides_of_different_kinds_tasks_or_data_are_rejected() -> None:
    run, group = make(CLASSES, "one", 0.9), make(CLASSES, "group", 0.9, THREE)
    for sides in ((run, group), (group, run), (group, folds(0.9)), (folds(0.9), run)):
        with pytest.raises(UserError, match=f"^{sides[0].name} and {sides[1].name} cannot be compared"):
            compare(*sides)
    with pytest.raises(UserError, match=r"^one and other cannot be compared"):
        compare(run, make(TASKS["pairs"], "other", 0.9))
    first = run.runs[0].predictions["test"]
    changes: list[dict[str, Any]] = [
        {"labels": np.roll(first.labels, 1)},
        {"idx": first.idx + 1},
        {"rows": first.rows.assign(text="another")},
    ]
    for change in changes:
        with pytest.raises(UserError, match=r"^one and b cannot be compared.* test texts"):
            compare(run, changed(run, "test", partial(lambda change, _: change, change)))
        rest = compare(run, changed(run, "validation", partial(lambda change, _: change, change)))
        assert set(rest.scores["split"]) == {"test"}, "another split is left out"
    constant = [
        changed(side, "validation", lambda run: {"labels": 0 * run.labels})
        for side in [make(TASKS["no test labels"], "x", 1)] * 2
    ]
    with pytest.raises(UserError, match=r"evaluate\.metrics"):
        compare(*constant)


def folds(noise: float, k: int = 5) -> Side:
    task = replace(CLASSES, predicted_splits=[OUT_OF_FOLD])
    validation, whole = predictions(CLASSES, 0, 1, noise), predictions(CLASSES, 1, 1, noise)
    parts = [whole[number::k] for number in range(k)]
    runs = [
        Run(f"folds-{number}", CLASSES, {"train.seed": 1}, {"validation": validation, "test": part})
        for number, part in enumerate(parts, 1)
    ]
    return Side("folds", [Run("folds", task, {"train.seed": 1}, {OUT_OF_FOLD: pool(parts)})], runs)


def test_fold_groups_are_compared_fold_by_fold() -> None:
    a, b = folds(1.4), folds(0.5)
    result = compare(a, b)
    means = [np.mean([fold.predictions["test"].score("accuracy") for fold in side.folds]) for side in (a, b)]
    assert result.scores.loc[0, ["a", "b"]].tolist() == pytest.approx(means)
    assert result.better == "B" and OUT_OF_FOLD in result.verdict
    assert "seeds" not in printed_notes(a, b)
    with pytest.raises(UserError, match="cannot be compared"):
        compare(a, folds(0.5, k=6))


def test_rows_that_train_also_has_are_reported() -> None:
    def leak(count: int) -> Change:
        return lambda test: {"rows": test.rows.assign(**{LEAKAGE: [2] * count + [1] * 5 + [0] * (N - count - 5)})}

    a, b = (changed(make(CLASSES, "x", 0.9), "test", leak(count), "x") for count in (7, 45))
    [key] = compare(a, b).differences
    assert "train" in key and compare(a, b).differences[key] == (7, 45)
    assert re.search(r"Warning: .*\b45\b.*\b7\b", printed_notes(a, b))
    assert compare(b, a).differences[key] == (45, 7) and "Warning" not in printed_notes(b, a)


def test_other_code_or_another_environment_stands_among_the_differences() -> None:
    keys = ["pipeline/core", "environment.cpu", "compute.lock", "data"]
    a, b = (make(CLASSES, name, noise, FIVE, **dict.fromkeys(keys, name)) for name, noise in (("a", 1.4), ("b", 0.5)))
    text = as_text(compare(a, b))
    assert all(re.search(rf"^{key} +a +b$", text, re.M) for key in keys)


def test_degenerate_runs_and_narrow_intervals_are_named() -> None:
    a, b = make(CLASSES, "a", 0.9, FIVE), make(CLASSES, "b", 0.8, FIVE)
    [first, *rest] = b.runs
    constant = changed(Side("", [first]), "test", lambda test: {"predicted": 0 * test.predicted}).runs
    assert re.search("^Warning: the same prediction .* b-0.$", printed_notes(a, Side("b", [*constant, *rest])), re.M)
    task = replace(CLASSES, metrics=["balanced_accuracy"])
    rare = np.array([2] * 19 + ([0, 1] * N)[: N - 19])
    a, b = (changed(make(task, "x", 0.9, [seed]), "test", lambda test: {"labels": rare}, "x") for seed in (1, 2))
    assert re.search('too narrow.*"blue"', printed_notes(a, b))


def test_untrusted_texts_cannot_forge_output() -> None:
    forged = f"x\x1b]0;title\x07\r\nVerdict: B is better: {HOSTILE}"
    task = replace(CLASSES, labels=["red", "green", forged])
    settings = (("a", 1.4, [1]), ("b", 0.5, [2]))
    sides = [make(task, f"{name}{forged}", noise, seeds, note=forged + name) for name, noise, seeds in settings]
    a, b = (changed(side, "test", lambda test: {"rows": test.rows.assign(text=forged)}, side.name) for side in sides)
    result = compare(a, b)
    lines = as_text(result).split("\n")
    assert all(map(str.isprintable, lines)) and sum(line.startswith("Verdict") for line in lines) == 1
    markdown = as_markdown(result)
    assert markdown.startswith("**These two models differ")
    assert not re.search(r"@everyone|<b>|\[link|`|\x1b", markdown) and "@everyone" in html.unescape(markdown)
    rows = [line for line in markdown.split("\n") if line.startswith("|")]
    assert {row.count("|") for row in rows} == {4, 6}, "a text must not add a cell"


def test_json_has_no_nan_and_no_infinity() -> None:
    a, b = (make(CLASSES, name, noise, note=[noise, inf], other=nan) for name, noise in (("a", 1.4), ("b", 0.5)))
    content = read_json(compare(a, b))
    assert content["changes"] == {"note": [[1.4, None], [0.5, None]], "other": [None, None], "train.lr": [1.4, 0.5]}


@pytest.fixture(scope="module")
def toy_with_experiments(tmp_path_factory: pytest.TempPathFactory, toy_template: Project) -> Project:
    project = copy_of(toy_template, tmp_path_factory.mktemp("toy"))
    for seed in "12":
        experiment(project, f"low-{seed}", train__lr="5e-4", train__seed=seed)
        experiment(project, f"high-{seed}", train__lr="2e-3", train__seed=seed)
    restore(project)
    return project


@pytest.fixture
def toy(toy_with_experiments: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A committed result and the seed groups `low` and `high`. Changes of files are undone afterwards."""
    monkeypatch.chdir(toy_with_experiments.root)
    yield toy_with_experiments
    restore(toy_with_experiments)


def test_results_of_the_workspace_that_lack_a_change_are_reported(toy: Project) -> None:
    main = read_side("main")
    assert notes(compare(main, read_side("workspace"))) == []
    assert compare(main, read_side("workspace")).differences == {}
    toy.set("train.lr", "9e-4")
    [note] = notes(compare(main, read_side("workspace")))
    assert "train" in note and "download" not in note and "dvc repro" in note
    Path("pipeline/core/text.py").write_text("# changed")
    [note] = notes(compare(main, read_side("workspace")))
    assert "download, train" in note
    assert any("workspace" in note and "download" in note for note in notes(compare(read_side("linear"), main)))
    assert notes(compare(main, main)) == []


def run(toy: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline.compare", *arguments]
    return subprocess.run(command, cwd=toy.root, env=toy.env | {"COLUMNS": "80"}, capture_output=True, text=True)


def test_the_command_compares_groups_and_its_exit_status_is_the_gate(toy: Project) -> None:
    done = run(toy, "high", "low", "--gate", "--margin", "1")
    assert done.returncode == 4
    assert re.search(
        r"^test accuracy +\d\d\.\d\d +\d\d\.\d\d +-\d+\.\d\d +-\d+\.\d\d to -\d+\.\d\d$", done.stdout, re.M
    )
    assert re.search(r"^train\.lr +0\.002 +0\.0005$", done.stdout, re.M)
    assert re.search(r"^Verdict: B is worse: .* points of test accuracy", done.stdout, re.M)
    assert re.search(r"^Gate: fails", done.stderr, re.M)
    assert toy.git("status", "--porcelain") == ""
    done = run(toy, "linear", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["b"]) == (0, "workspace")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: A$"),
        (["main", "a", "b"], "unrecognized arguments: b"),
        (["main", "--margin", "-1"], "--margin: must be at least 0"),
        (["main", "--format", "xml"], "--format"),
    ],
)
def test_wrong_arguments_end_with_status_2(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert re.search(message, capsys.readouterr().err, re.M)
