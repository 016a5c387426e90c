"""Runs and groups are read from commits, out of DVC's cache, with everything that may differ between them."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import Project
from toy import copy_of, experiment, restore

from pipeline.core.messages import UserError
from pipeline.experiments.runs import OUT_OF_FOLD, changes, read_side


@pytest.fixture(scope="module")
def toy_with_groups(tmp_path_factory: pytest.TempPathFactory, toy_template: Project) -> Project:
    """A toy project with a seed group, two mixed groups, a fold group, and a fold group without its second fold."""
    project = copy_of(toy_template, tmp_path_factory.mktemp("toy"))
    for seed in "1", "2", "10":
        experiment(project, f"seeds-{seed}", train__seed=seed, train__epochs="7")
    experiment(project, "rates-2", train__seed="2", train__epochs="7", train__lr="2e-4")
    experiment(project, "machines-2", train__seed="2", train__epochs="7", train__training_args="{note: another CPU}")
    for number in "1", "2":
        experiment(project, f"folds-{number}", data__split__fold=f"{number}/2")
        experiment(project, f"part-{number}", train__seed=number, data__split__fold="1/2")
    for name, existing in {"rates-1": "seeds-1", "machines-1": "seeds-1", "folds-incomplete-1": "folds-1"}.items():
        [reference] = project.git("for-each-ref", "--format=%(refname)", f"refs/exps/*/*/{existing}").split()
        project.git("update-ref", reference.replace(existing, name), reference)
    restore(project)
    return project


@pytest.fixture
def toy(toy_with_groups: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(toy_with_groups.root)
    return toy_with_groups


def test_the_runs_of_a_seed_group_are_read_in_the_order_of_their_seeds(toy: Project) -> None:
    side = read_side("seeds")
    assert side.seeds == [1, 2, 10]
    assert read_side("part").seeds == [1, 2], "all of them have the same fold"
    assert [warning.rpartition(" in ")[2] for warning in side.warnings("test")] == ["seeds-2."]
    expected = pd.read_parquet("data/raw/test.parquet")
    for run in side.runs:
        assert run.predictions["test"].labels.tolist() == expected["label"].tolist()
        assert run.predictions["test"].rows["sentence1"].tolist() == expected["sentence1"].tolist()
    difference = changes(side.runs[0].origin, side.runs[1].origin)
    assert difference == {"train.seed": (1, 2)}


def test_commits_the_workspace_and_the_linear_model_are_single_runs(toy: Project) -> None:
    [main], [workspace] = read_side("main").runs, read_side("workspace").runs
    assert changes(main.origin, workspace.origin) == {}
    assert (main.predictions["test"].logits == workspace.predictions["test"].logits).all()
    for model in ("linear", "frozen"):
        [run], [run_of_experiment] = read_side(model).runs, read_side("rates-2", model).runs
        assert (run.predictions["test"].predicted == run_of_experiment.predictions["test"].predicted).all()
        assert changes(main.origin, run.origin)["model"] == ("fine-tuned", model)
    [run] = read_side("rates-2").runs
    assert changes(main.origin, run.origin)["train.lr"] == (1e-3, 2e-4)
    assert {"pipeline/toy.py", "pipeline/core", "data.task", "environment.torch"} <= main.origin.keys()


def test_a_workspace_whose_lock_file_lacks_a_stage_is_reported(toy: Project, tmp_path: Path, monkeypatch: Any) -> None:
    lock = yaml.safe_load(Path("dvc.lock").read_text())
    del lock["stages"]["train"]
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump(lock))
    monkeypatch.setattr("pipeline.experiments.runs.LOCK", tmp_path / "dvc.lock")
    with pytest.raises(UserError, match="no results of train"):
        read_side("workspace")


@pytest.mark.parametrize(("group", "key"), [("rates", "train.lr"), ("machines", "environment.cpu")])
def test_runs_with_another_origin_are_not_mixed(group: str, key: str, toy: Project) -> None:
    with pytest.raises(UserError, match=f"{group}-1 and {group}-2 .*{key}.*dvc exp remove {group}-2"):
        read_side(group)


def test_a_fold_group_has_the_predictions_of_all_folds(toy: Project) -> None:
    side = read_side("folds")
    pooled = side.runs[0].predictions[OUT_OF_FOLD]
    assert pooled.idx.tolist() == list(range(0, 600, 2))
    for fold in side.folds:
        part = fold.predictions["test"]
        assert (pooled.logits[np.isin(pooled.idx, part.idx)] == part.logits).all()
    with pytest.raises(UserError, match=r"incomplete.* 2/2"):
        read_side("folds-incomplete")


def test_names_and_results_that_do_not_exist_are_one_line(toy: Project) -> None:
    with pytest.raises(UserError, match="nowhere"):
        read_side("nowhere")
    with pytest.raises(UserError, match=r"data/baseline.* is missing.*dvc repro"):
        shutil.rmtree("data/baseline")
        read_side("linear")
    toy.set("baseline.frozen", "false")
    with pytest.raises(UserError, match=r"baseline\.frozen"):
        read_side("frozen")
    restore(toy)


@pytest.mark.parametrize("name", ["main", "rates-1"])
def test_predictions_that_are_not_in_the_cache_are_one_line(
    name: str, toy: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone has the commits, and after "git fetch" also the experiments, but not the cache."""
    toy.git("clone", "--quiet", ".", str(tmp_path / "clone"))
    monkeypatch.chdir(tmp_path / "clone")
    toy.git("-C", str(tmp_path / "clone"), "fetch", "--quiet", str(toy.root), "refs/exps/*:refs/exps/*")
    with pytest.raises(UserError, match=rf"{name}: data/predictions is not in the DVC cache.*dvc (exp )?pull"):
        read_side(name)


def test_predictions_that_were_deleted_from_the_cache_are_one_line(toy: Project) -> None:
    for file in Path(".dvc/cache").rglob("*"):
        if file.is_file() and file.suffix != ".dir":
            file.unlink()
    with pytest.raises(UserError, match=r"main: data/predictions is not in the DVC cache.*dvc pull"):
        read_side("main")
