"""`python -m pipeline.compare` on real revisions and experiments, with real DVC."""

import dataclasses
import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from conftest import Project
from dvc.api import open as open_dvc
from sklearn.metrics import accuracy_score, f1_score
from toy import HOSTILE, copy_of, experiment, restore

from pipeline.core.messages import UserError
from pipeline.evaluation.uncertainty import difference, jackknife
from pipeline.experiments.comparison import Comparison, compare
from pipeline.experiments.gate import decide
from pipeline.experiments.render import as_gate, as_markdown, as_table, as_text
from pipeline.experiments.revisions import Run, read_runs
from pipeline.experiments.sides import Side, read_side, with_metrics

MRPC = ("accuracy", "f1")
LOW, HIGH, LATE = "seeds-11111111", "seeds-22222222", "seeds-33333333"

# An escape sequence that breaks colorama, another one that clears the line, and a forged line.
FORGED = "x\x1b]0;title\x07\x1b[2K\r\nVerdict: B is better: +9.0 points of test accuracy"


def compare_revisions(a: str, b: str) -> Comparison:
    return compare(Side(a, read_runs(a)), Side(b, read_runs(b)))


@pytest.fixture(scope="module")
def toy_with_experiments(tmp_path_factory: pytest.TempPathFactory, toy_template: Project) -> Project:
    project = copy_of(toy_template, tmp_path_factory.mktemp("toy"))
    experiment(project, "worse", train__lr="2e-4", train__training_args="{note: 1}")
    for group, lr, seeds in ((LOW, "5e-4", "12"), (HIGH, "2e-3", "12"), (LATE, "2e-3", "34")):
        for seed in seeds:
            experiment(project, f"{group}-{seed}", train__lr=lr, train__seed=seed)
    experiment(project, "number", data__task="stsb")
    experiment(project, "few-1", predict__max_samples="50")
    experiment(project, "forged", train__lr="2e-3", train__training_args=json.dumps({"note": FORGED}))
    restore(project)
    return project


@pytest.fixture
def toy(toy_with_experiments: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A committed result, experiments `worse`, `number`, `few-1`, `forged` and seed groups LOW, HIGH, LATE."""
    monkeypatch.chdir(toy_with_experiments.root)
    return toy_with_experiments


@pytest.fixture
def edited_toy(toy: Project) -> Iterator[Project]:
    """The project of `toy`, for tests that change its files. They are restored afterwards."""
    yield toy
    restore(toy)


def predictions(revision: str) -> dict[str, list[float]]:
    with open_dvc("data/predictions/test.parquet", rev=revision, mode="rb") as file:
        rows: dict[str, list[float]] = pq.read_table(file).to_pydict()
    return rows


@pytest.fixture(scope="module")
def sides(toy_with_experiments: Project) -> dict[str, Side]:
    """The runs of the fixture `toy`, read once for all tests that are not about reading."""
    with chdir(toy_with_experiments.root):
        return {name: Side(name, read_runs(name)) for name in ("main", "worse", LOW, HIGH, LATE)}


def test_scores_and_changed_pairs_match_the_predictions(toy: Project) -> None:
    comparison = compare_revisions("main", "worse")
    test = comparison.splits["test"]
    a, b = (predictions(revision) for revision in ("main", "worse"))
    for side, table in ((test.a, a), (test.b, b)):
        assert side["accuracy"] == pytest.approx(accuracy_score(table["label"], table["prediction"]))
        assert side["f1"] == pytest.approx(f1_score(table["label"], table["prediction"]))
    right_a, right_b = (np.array(table["label"]) == np.array(table["prediction"]) for table in (a, b))
    assert {pair.idx for pair in test.broken} == set(np.array(a["idx"])[right_a & ~right_b].tolist())
    assert test.fixed == []
    assert test.changed == len(test.broken)
    label_probabilities = [pair.b for pair in test.broken]
    assert label_probabilities == sorted(label_probabilities), "B's most confident mistake comes first"
    assert test.broken[0].texts[1] == HOSTILE
    assert comparison.changes == {
        "parameters": {"train.lr": (1e-3, 2e-4), "train.training_args": ({}, {"note": 1})},
        "environment": {"cpu": ("a CPU", 1)},
        "code": {},
    }

    back = compare_revisions("worse", "main")
    forward, backward = comparison.splits["validation"], back.splits["validation"]
    assert forward.difference["f1"].value == pytest.approx(-backward.difference["f1"].value)
    assert {pair.idx for pair in forward.broken} == {pair.idx for pair in backward.fixed}


def test_the_verdict_on_two_single_runs_only_says_whether_they_differ(sides: dict[str, Side]) -> None:
    """With different seeds, the same two configurations may rank in the opposite order."""
    for a, b, direction in (("main", "worse", "-"), ("worse", "main", "+")):
        comparison = compare(sides[a], sides[b])
        assert comparison.better_side is None
        accuracy = comparison.splits["test"].difference["accuracy"]
        value, low, high = (f"{100 * proportion:+.1f}" for proportion in (accuracy.value, accuracy.low, accuracy.high))
        assert value.startswith(direction)
        assert comparison.verdict == (
            f"these two models differ: {value} points of test accuracy "
            f"(95% confidence interval: {low} to {high} points)"
        )
        assert "python -m pipeline.seeds --n 5" in comparison.caveats[0]
        for text in (as_text(comparison), html.unescape(as_markdown(comparison))):
            assert "python -m pipeline.seeds --n 5" in text
            assert not re.search(r"\b(better:|worse:)", text)


def test_the_text_has_columns_and_a_verdict(toy: Project, sides: dict[str, Side]) -> None:
    comparison = compare(sides["main"], sides["worse"])
    text = as_text(comparison)
    signature = r"   task:demo\|metrics:accuracy\+f1\|test:300@\w{8}\|validation:100@\w{8}\|seed:42\|checkpoint:a .*"
    main = rf"A: main \({toy.git('rev-parse', 'main')[:7]}\)\n({signature})\n"
    assert re.match(main + r"B: worse \(\w{7}\)\n\1\n\n", text)
    assert re.search(r"^test accuracy +\d\d\.\d\d +\d\d\.\d\d +-\d+\.\d\d +-\d+\.\d\d to -\d+\.\d\d$", text, re.M)
    assert re.search(r"^train\.lr +0\.001 +0\.0002$", text, re.M)
    detectable = (
        f"A true difference of roughly {100 * comparison.difference.detectable:.1f} points of test accuracy is "
    )
    assert f"{detectable}detected about 80% of the time." in text
    lines, verdict = text.split("\nVerdict: ")
    assert verdict.startswith(comparison.verdict)
    assert max(len(line) for line in lines.splitlines() if "|code:" not in line) <= 100


def test_text_from_another_branch_cannot_forge_a_line(toy: Project) -> None:
    """The text comes from environment.json. Piped output also passes through colorama, which DVC loads."""
    lines = toy.run("python", "-m", "pipeline.compare", "main", "forged").splitlines()
    assert sum(line.startswith("Verdict") for line in lines) == 1
    assert [line for line in lines if not line.isprintable()] == []
    assert any(re.match(r"cpu +a CPU +x ", line) for line in lines)


def test_a_run_equals_itself_and_compare_changes_no_file(toy: Project) -> None:
    def files() -> dict[Path, int]:
        paths = [path.relative_to(toy.root) for path in toy.root.rglob("*")]
        ignored = {".git", "tmp", "__pycache__"}
        times = {path: (toy.root / path).stat().st_mtime_ns for path in paths if not ignored & set(path.parts)}
        assert Path("data/predictions/test.parquet") in times
        return times

    before = files()
    out = as_text(compare_revisions("HEAD", "workspace"))
    assert "B: workspace" in out
    assert "Verdict: no difference: the predictions are identical, and so are the parameters" in out
    assert out.count(": identical\n") == 3
    assert files() == before
    assert toy.git("status", "--porcelain") == ""


def test_a_label_in_a_caveat_cannot_break_the_markdown(sides: dict[str, Side]) -> None:
    comparison = compare(sides["main"], sides["worse"])
    out = as_markdown(dataclasses.replace(comparison, interval_caveats=['The label "<b>@someone" is rare.']))
    assert "<b>" not in out
    assert "@someone" not in out
    assert 'The label "<b>@someone" is rare.' in html.unescape(out)


def test_a_sentence_cannot_break_the_markdown(sides: dict[str, Side]) -> None:
    out = as_markdown(compare(sides["main"], sides["worse"]))
    assert out.startswith("**These two models differ:")
    assert out.count("<details>") == out.count("</details>") == 1
    for row in (line for line in out.splitlines() if line.startswith("|")):
        assert row.count("|") - 1 in (3, 5), "a sentence must not add a cell"
    cells = re.findall("<br><code>(.*?)</code> ", out)
    assert len(cells) == 3
    for cell in cells:
        assert not set(cell) & set("|<>@`[]*_!:"), "these characters must be written as HTML entities"
        assert html.unescape(cell) == HOSTILE.replace("\x1b", " ").replace("\n", " ")


def test_runs_are_paired_by_their_seeds(sides: dict[str, Side]) -> None:
    """Neither the number of runs nor their order determines which runs are paired."""
    for name, same_seeds in ((HIGH, True), (LATE, False)):
        a, b = sides[LOW], sides[name]
        comparison = compare(a, b)
        assert ("not paired" in str(comparison.seeds)) is not same_seeds
        predictions = [[run.predictions["test"] for run in side.runs] for side in (a, b)]
        for metric in MRPC:
            jackknives = [
                np.stack([jackknife(metric, run.labels, run.predicted) for run in runs]) for runs in predictions
            ]
            assert comparison.splits["test"].difference[metric] == difference(*jackknives, same_seeds=same_seeds)
            assert comparison.splits["test"].difference[metric] != difference(*jackknives, same_seeds=not same_seeds)
        renamed = [run._replace(name=name) for run, name in zip(b.runs, "zy", strict=True)]
        for runs_b in (renamed, renamed[::-1]):
            assert compare(a, b._replace(runs=runs_b)) == comparison
        seeds = None if same_seeds else ([1, 2], [3, 4])
        assert comparison.changes["parameters"].get("train.seed") == seeds
        assert "is detected about" not in as_text(comparison), (
            "two seeds say too little about the variance between seeds"
        )


def test_runs_of_different_tasks_are_rejected(sides: dict[str, Side], toy: Project) -> None:
    number = Side("number", read_runs("number"))
    assert number.runs[0].task.scored_splits == ["validation"], "its test set has no labels"
    with pytest.raises(UserError, match=r"main and number have different tasks: .*name \(demo and stsb\)"):
        compare(sides["main"], number)


def test_a_seed_group_cannot_be_compared_with_a_single_run(toy: Project) -> None:
    with pytest.raises(UserError, match=rf"{LOW} .*2 runs, but workspace .*single run\. .*{LOW}-1"):
        compare_revisions(LOW, "workspace")


def test_the_linear_model_is_compared_with_a_run(toy: Project) -> None:
    comparison = compare_revisions("baseline", "workspace")
    assert comparison.verdict_comparison.a["accuracy"] < comparison.verdict_comparison.b["accuracy"]
    assert comparison.changes == {"parameters": {"model": ("linear@00000000", "a checkpoint@00000000")}}
    assert "linear@00000000" in as_text(comparison)
    assert not any("A and B differ in" in caveat for caveat in comparison.caveats)


def update_entries(field: str, **entries: Any) -> Callable[[Run], Run]:
    return lambda run: run._replace(**{field: getattr(run, field) | entries})


def test_a_seed_group_with_two_signatures_is_rejected(sides: dict[str, Side]) -> None:
    first, second = sides[LOW].runs
    changed = update_entries("signature", checkpoint="another@00000000")(second)
    message = rf"{LOW}-1 and {LOW}-2 differ in checkpoint \(a checkpoint@00000000 and another@00000000\)\. .*exp remove"
    with pytest.raises(UserError, match=message):
        compare(sides[HIGH], Side(LOW, [first, changed]))


def test_runs_with_different_slices_are_compared(sides: dict[str, Side]) -> None:
    [run] = sides["worse"].runs
    sliced = run._replace(task=dataclasses.replace(run.task, slice_columns=["source"]))
    assert compare(sides["main"], Side("worse", [sliced])).verdict == compare(sides["main"], sides["worse"]).verdict


@pytest.mark.parametrize(
    ("change", "origin"),
    [(update_entries("environment", cpu="another"), "environment"), (lambda run: run._replace(code="another"), "code")],
)
def test_a_difference_in_environment_or_code_is_reported_with_the_verdict(
    change: Callable[[Run], Run], origin: str, sides: dict[str, Side]
) -> None:
    low, high = sides[LOW], sides[HIGH]
    assert compare(low, high).caveats == []
    for b, caveat in (
        (high, rf"^A and B differ in {origin}, which may explain the difference"),
        (low, rf"identical, although A and B differ in {origin}"),
    ):
        comparison = compare(low, b._replace(runs=[change(run) for run in b.runs]))
        for text in (as_text(comparison), as_markdown(comparison)):
            assert re.search(caveat, text, re.M)
            assert "another" in text, "the table is still shown"
    changed = [Side(name, [change(run) for run in high.runs]) for name in ("changed", "also changed")]
    comparisons = [compare(low, candidate) for candidate in (high, *changed)]
    table = as_table(comparisons, [decide(comparison, 1) for comparison in comparisons])
    assert f"\nchanged, also changed: A and B differ in {origin}," in table


def test_seed_groups_are_compared_across_seeds_and_examples(sides: dict[str, Side]) -> None:
    low, high = sides[LOW], sides[HIGH]
    comparison = compare(low, high)
    assert comparison.seeds == "1, 2 in both A and B, paired by seed"
    assert comparison.changes["parameters"] == {"train.lr": (5e-4, 2e-3)}
    assert comparison.better_side == "B"
    test = comparison.splits["test"]
    singles = [compare(Side("a", [a]), Side("b", [b])) for a, b in zip(low.runs, high.runs, strict=True)]
    values = [single.splits["test"].difference["accuracy"].value for single in singles]
    assert test.difference["accuracy"].value == pytest.approx(np.mean(values))
    text = as_text(comparison)
    assert "Seeds: 1, 2 in both A and B, paired by seed." in text
    assert text.count("seed:1,2") == html.unescape(as_markdown(comparison)).count("seed:1,2") == 2


@pytest.mark.parametrize("column", ["labels", "texts", "idx"])
def test_runs_on_different_data_are_rejected(column: str, sides: dict[str, Side]) -> None:
    (run,) = sides["worse"].runs
    test = run.predictions["test"]
    if column == "texts":
        texts = [("another", ""), *run.texts["test"][1:]]
        changed_run = run._replace(texts=run.texts | {"test": texts})
    else:
        values = getattr(test, column).copy()
        values[7] += 1
        changed_split = dataclasses.replace(test, **{column: values})
        changed_run = run._replace(predictions=run.predictions | {"test": changed_split})
    message = r"^main and worse were scored on different test pairs\. Both have 300, but .* Compare runs on the "
    with pytest.raises(UserError, match=message):
        compare(sides["main"], Side("worse", [changed_run]))


def test_a_split_with_different_labels_is_left_out_unless_the_verdict_is_about_it(
    sides: dict[str, Side], caplog: pytest.LogCaptureFixture
) -> None:
    """After labels of train and validation were corrected, test is still the same."""
    (run,) = sides["worse"].runs
    validation = run.predictions["validation"]
    corrected = dataclasses.replace(validation, labels=1 - validation.labels)
    corrected_run = run._replace(predictions=run.predictions | {"validation": corrected})
    comparison = compare(sides["main"], Side("worse", [corrected_run]))
    assert list(comparison.splits) == ["test"]
    assert "validation is left out, because its pairs or their labels differ" in caplog.messages
    assert "test accuracy" in as_text(comparison)


def test_missing_revisions_and_outputs_are_reported_in_one_line(
    edited_toy: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nothing", "few", "", "^HEAD"):
        with pytest.raises(
            UserError, match=rf'^"{re.escape(name)}" is .*\. Run "git branch" or "dvc exp list -A" .*\.$'
        ):
            compare_revisions(name, "workspace")
    with pytest.raises(UserError, match=r'^HEAD~1: dvc\.lock is missing\. .*"dvc repro"'):
        compare_revisions("HEAD~1", "workspace")
    shutil.rmtree(edited_toy.root / "data" / "predictions")
    with pytest.raises(UserError, match=r'^workspace: data/predictions .* \(deleted\)\. Run "dvc repro"\.$'):
        compare_revisions("main", "workspace")

    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf"^{tmp_path} is not the top level of a git repository that uses DVC\. "):
        compare_revisions("main", "workspace")


def test_predictions_missing_from_the_cache_are_not_downloaded(
    toy: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone has the revisions but not the cache. An experiment cannot be checked out by its name."""
    clone = tmp_path / "clone"
    toy.git("clone", "--quiet", ".", str(clone))
    toy.git("-C", str(clone), "fetch", "--quiet", "origin", "refs/exps/*:refs/exps/*")
    remote = f"[core]\n    remote = near\n['remote \"near\"']\n    url = {toy.root}/.dvc/cache\n"
    (clone / ".dvc" / "config.local").write_text(remote)
    monkeypatch.chdir(clone)
    with pytest.raises(UserError, match=r'^main: data/predictions .*cache\. .*"dvc pull"'):
        compare_revisions("main", "main")
    with pytest.raises(UserError, match=r'^worse: data/predictions .*cache\. .*run "dvc exp remove worse"'):
        compare_revisions("worse", "worse")


def test_a_cache_in_another_directory_is_found(toy: Project) -> None:
    """The .dvc/config of a revision may not name the cache, or may name it relative to another directory."""
    moved = toy.root.parent / "elsewhere"
    Path(".dvc", "cache").rename(moved)
    toy.run("dvc", "cache", "dir", "../elsewhere")
    try:
        assert compare_revisions("main", "worse").splits["test"].n == 300
    finally:
        moved.rename(Path(".dvc", "cache"))
        toy.git("checkout", "--quiet", ".dvc/config")


def test_runs_with_max_samples_are_read(toy: Project) -> None:
    (run,) = read_runs("few-1")
    assert len(run.predictions["test"].idx) == len(run.texts["test"]) == 50


def test_an_edited_params_yaml_is_not_mistaken_for_the_parameters_of_the_run(
    edited_toy: Project, caplog: pytest.LogCaptureFixture
) -> None:
    edited_toy.set("train.lr", "9e-4")
    comparison = compare_revisions("main", "workspace")
    assert comparison.changes["parameters"] == {}
    assert [m for m in caplog.messages if re.match(r"workspace: .*dvc\.lock.* params\.yaml .*train\.lr$", m)]


def test_predictions_of_an_outdated_model_are_rejected(edited_toy: Project) -> None:
    lock = yaml.safe_load(Path("dvc.lock").read_text())
    [model] = [output for output in lock["stages"]["train"]["outs"] if output["path"] == "models/classifier"]
    model["md5"] = "0" * 32  # as if only `dvc repro train` had run
    Path("dvc.lock").write_text(yaml.safe_dump(lock))
    reason = r"two versions of models/classifier, so its stages did not run together"
    with pytest.raises(UserError, match=rf'^workspace: dvc\.lock has {reason}\. Run "dvc repro"\.$'):
        read_runs("workspace")
    restore(edited_toy)
    Path("models", "classifier").unlink()  # it may be a link into the cache
    Path("models", "classifier").write_text("another model")
    with pytest.raises(UserError, match=r'models/classifier .* \(modified\)\. Run "dvc repro"\.$'):
        read_runs("workspace")


def test_a_stage_removed_from_dvc_yaml_is_ignored(edited_toy: Project) -> None:
    """DVC keeps the removed stage in dvc.lock."""
    with (edited_toy.root / "dvc.lock").open("a") as lock:
        lock.write("  fit:\n    cmd: fit\n    outs:\n    - path: models/classifier\n      md5: 0123456789abcdef\n")
    assert compare_revisions("main", "workspace").verdict.startswith("no difference")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("dvc.lock", "<<<<<<< HEAD\nstages:\n", r"dvc\.lock cannot be read: .* line \d+.*"),
        ("params.yaml", "train:\n<<<<<<< HEAD\n", r"params\.yaml cannot be read: .* line \d+.*"),
        ("dvc.lock", "", r"dvc\.lock is incomplete"),
        ("dvc.lock", "stages: {}\n", r"dvc\.lock has no entry for data/predictions"),
        (
            "dvc.lock",
            "stages:\n  predict:\n    outs:\n    - path: data/predictions\n",
            r"dvc\.lock is incomplete",
        ),
    ],
)
def test_a_conflicted_or_incomplete_file_is_reported_in_one_line(
    file: str, text: str, message: str, edited_toy: Project
) -> None:
    Path(file).write_text(text)
    with pytest.raises(UserError, match=rf'^workspace: {message}\. Run "dvc repro"\.$'):
        read_runs("workspace")


def run_gate(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline.compare", *arguments, "--gate"]
    return subprocess.run(command, cwd=project.root, env=project.env, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("names", "margin", "outcome", "line"),
    [
        ((LOW, HIGH), 0.5, "passes", rf"The gate passes {HIGH}: it is better$"),
        ((HIGH, LOW), 0.5, "fails", rf"The gate fails {LOW}: it is worse$"),
        ((HIGH, LOW), 40, "passes", rf"The gate passes {LOW}: it is not worse by 40 points or more$"),
        (
            (HIGH, LATE),
            0.5,
            "undecided",
            rf"The gate is undecided about {LATE}: it may be worse by 0\.5 points",
        ),
        (
            ("main", "worse"),
            0.5,
            "fails",
            r"The gate fails worse \(\w{7}\): it is worse\. This holds for these two models only, and not",
        ),
        ((HIGH, HIGH), 0, "passes", rf"The gate passes {HIGH}: its predictions are identical to those of A$"),
    ],
)
def test_the_gate_passes_fails_or_is_undecided(
    sides: dict[str, Side], names: tuple[str, str], margin: float, outcome: str, line: str
) -> None:
    comparison = compare(*(sides[name] for name in names))
    decision = decide(comparison, margin)
    assert decision.outcome == outcome
    assert re.search(line, as_gate(comparison, decision))


def replace_predictions(side: Side, name: str, change: Callable[[Any], dict[str, Any]]) -> Side:
    """Return a side with another name and different test predictions."""
    runs = []
    for number, run in enumerate(side.runs, 1):
        test = run.predictions["test"]
        predictions = run.predictions | {"test": dataclasses.replace(test, **change(test))}
        runs.append(run._replace(name=f"{name}-{number}", predictions=predictions))
    return Side(name, runs)


def gate_message(a: Side, b: Side, margin: float) -> str:
    comparison = compare(a, b)
    return as_gate(comparison, decide(comparison, margin))


@pytest.mark.parametrize("runs_per_side", [1, 2])
def test_sides_with_almost_the_same_answers_are_not_judged(sides: dict[str, Side], runs_per_side: int) -> None:
    """The interval has a width of 0, but the predictions could differ for other pairs."""
    a = Side("a", sides[HIGH].runs[:runs_per_side])
    b = replace_predictions(a, "surer", lambda test: {"logits": 2 * test.logits})
    line = gate_message(a, b, 0.5)
    assert re.search(
        r"undecided about surer.*: too few pairs changed to judge it \(0, but at least 10 are needed\)", line
    )


def test_a_degenerate_side_is_named(sides: dict[str, Side]) -> None:
    a = sides[HIGH]
    b = replace_predictions(
        a, "constant", lambda test: {"predicted": np.ones_like(test.predicted), "logits": -test.logits}
    )
    b.runs[0] = a.runs[0]._replace(name="constant-1")
    for lines in (as_text(compare(a, b)), as_markdown(compare(a, b)), gate_message(a, b, 0.5)):
        assert re.search(r"constant is degenerate in 1 of 2 runs \(constant-2\)", html.unescape(lines))
        assert f"{HIGH} is degenerate" not in lines


def test_several_candidates_are_shown_next_to_the_baseline(toy: Project) -> None:
    done = run_gate(toy, HIGH, LATE, LOW)
    assert re.search(
        rf"^A: {HIGH} +\d\d\.\d\d *\n{LATE} +\d\d\.\d\d +[+-]\d.* undecided\n{LOW} +\d.* fails", done.stdout, re.M
    )
    assert "the best of 2 may look better by chance" in done.stdout
    assert re.search(rf"^A: task:demo.*\n{LATE}: task:demo.*\|seed:3,4\|.*\n{LOW}: task:demo", done.stdout, re.M)
    assert re.search(rf"^The gate is undecided about {LATE}: .*\nThe gate fails {LOW}", done.stderr, re.M)
    assert done.returncode == 4


def test_the_metrics_of_params_yaml_are_compared(edited_toy: Project, sides: dict[str, Side]) -> None:
    edited_toy.set("evaluate.metrics", "[roc_auc, f1_macro]")
    text = as_text(compare(read_side("main"), read_side("worse")))
    assert re.search(r"^test ROC AUC +\d\d\.\d\d +\d\d\.\d\d +[+-]\d", text, re.M)
    assert re.search(r"^Verdict: .* test ROC AUC", text, re.M)
    assert text.count("|metrics:roc_auc+f1_macro|") == 2
    assert "accuracy" not in text
    with pytest.raises(UserError, match='got "rmse"'):
        with_metrics(sides["main"].runs[0], ["rmse"])
