"""Which stages a change reruns, experiments, and commands of the guides, with real DVC in a path with spaces."""

import json
import shlex

import pytest
from conftest import Project
from test_tutorial import commands

ALL = ["check", "download", "baseline", "pretrained", "tokenize", "train", "predict", "evaluate", "report"]


def evaluation(project: Project) -> dict[str, dict[str, float]]:
    return json.loads((project.root / "metrics" / "evaluation.json").read_text())  # type: ignore[no-any-return]


@pytest.mark.slow
def test_the_pipeline_runs_and_a_change_reruns_only_what_it_affects(project: Project) -> None:
    assert sorted(project.repro()) == sorted(ALL)
    lock = (project.root / "dvc.lock").read_text()
    report = evaluation(project)
    assert report["test"]["n"] == 240
    assert project.repro() == [], "nothing has changed, so nothing runs"
    project.commit("a first result")

    first = (project.root / "params.yaml").read_text()
    project.set("train.lr", "2e-3")
    project.set("train.max_train_samples", "80")
    assert project.repro() == ["check", "train", "predict", "evaluate", "report"]
    assert evaluation(project) != report
    project.commit("another result")
    assert "metrics/evaluation.json" in project.run("dvc", "metrics", "diff", "HEAD~1", "--md")

    (project.root / "params.yaml").write_text(first)
    assert project.repro() == [], "the earlier result is restored from the run cache"
    assert (project.root / "dvc.lock").read_text() == lock
    assert evaluation(project) == report

    project.set("predict.batch_size", "7")
    assert "train" not in project.repro(), "the model is not retrained"

    project.set("evaluate.metrics", "[roc_auc, f1]")
    assert project.repro() == ["check", "evaluate", "report"]
    assert {"roc_auc", "f1", "majority_roc_auc"} < evaluation(project)["test"].keys()
    [diagnostics] = json.loads((project.root / "metrics" / "diagnostics.json").read_text())
    assert diagnostics["test"]["intervals"].keys() == {"roc_auc", "f1"}
    project.set("evaluate.metrics", "null")
    assert project.repro() == [], "the earlier result is in the run cache"

    for key, value in (("runtime.num_proc", "2"), ("runtime.dataloader_num_workers", "1")):
        project.set(key, value)
    assert project.repro() == ["check"], "runtime settings rerun only the check"

    with (project.root / "pipeline" / "evaluate.py").open("a") as code:
        code.write("# a change\n")
    assert project.repro() == ["evaluate"]

    metrics = json.loads(project.run("dvc", "metrics", "show", "--json"))[""]["data"]
    assert [path for path, file in metrics.items() if file["data"]] == ["metrics/evaluation.json"]
    charts = json.loads(project.run("dvc", "plots", "show", "--json"))["data"]
    assert {"Score", "Learning rate", "metrics/plots/history.csv", "metrics/plots/confusion.csv"} <= charts.keys()


@pytest.fixture
def committed_result(project: Project) -> None:
    """Commit the result of the committed files. An earlier test may have changed the files in the workspace."""
    project.git("checkout", "--quiet", ".")
    project.repro()
    project.commit("a result")


@pytest.mark.slow
@pytest.mark.usefixtures("committed_result")
def test_an_experiment_shows_no_scores_of_another_model(project: Project) -> None:
    partial = ["dvc", "exp", "run", "train"]
    project.run(*partial, "--name", "trained", "--set-param", "train.lr=3e-3")
    project.git("checkout", "--quiet", ".")
    project.run("dvc", "checkout", "--quiet", "--force")
    project.run(*partial, "--name", "queued", "--queue", "--set-param", "train.seed=7")
    project.run("dvc", "exp", "run", "--run-all")
    experiments = json.loads(project.run("dvc", "exp", "show", "--json"))[1]["experiments"]
    metrics = {entry["name"]: entry["revs"][0]["data"]["metrics"] for entry in experiments}
    assert metrics.keys() == {"trained", "queued"} and "accuracy" not in str(metrics)
    assert evaluation(project)["test"]["accuracy"], "the workspace keeps its own score"
    assert project.repro() == []
    assert project.git("status", "--porcelain") == ""
    assert not list((project.root / "models" / ".checkpoints").iterdir()), "finished runs leave no checkpoints"


@pytest.mark.slow
@pytest.mark.usefixtures("committed_result")
def test_the_commands_in_the_guides_work(project: Project) -> None:
    def run_commands(page: str, start: str, **replacements: str) -> list[str]:
        outputs = []
        for command in commands(page, start):
            for old, new in replacements.items():
                command = command.replace(old, new)
            outputs.append(project.run("bash", "-ec", command if "dvc gc" not in command else f"yes | {command}"))
        return outputs

    checkpoint = project.params()["model"]["checkpoint"]
    replacements = {"sentence-transformers/all-MiniLM-L6-v2": checkpoint}
    first, *_ = run_commands("docs/your_data.md", "dvc exp run -S model.checkpoint=", **replacements)
    assert "Running stage 'train'" in first
    assert project.git("status", "--porcelain") == ""

    project.commit("nothing is left to add")
    *_, experiment, diff, verdict = run_commands("docs/quick_start.md", "dvc exp run -S train.lr=5e-5")
    assert "Running stage 'train'" in experiment and "Running stage 'tokenize'" not in experiment
    assert "metrics/evaluation.json" in diff
    assert "Verdict:" in verdict
    project.run(*shlex.split("dvc plots diff main"))
    project.run(*shlex.split("git checkout params.yaml"))
    assert "Running stage 'train'" not in project.run("dvc", "repro"), "the earlier result comes from the cache"

    out = project.root.parent / "model"
    tag, _push, get = commands("docs/share_results.md", "git tag -a classifier@v1.0.0")
    project.run(*shlex.split(tag))
    project.run(*shlex.split(get.replace("URL-OF-YOUR-REPOSITORY", ".")), "--out", str(out))
    assert (out / "model.safetensors").is_file()

    name, *_ = project.git("for-each-ref", "--format=%(refname:lstrip=4)", "refs/exps/*/*/*").split()
    cache = project.root / ".dvc" / "cache"
    before = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    run_commands("docs/costs.md", "dvc exp remove NAME", NAME=name)
    run_commands("docs/costs.md", "dvc gc --workspace")
    assert sum(file.stat().st_size for file in cache.rglob("*") if file.is_file()) < before
    assert project.repro() == [], "the data that HEAD needs is still in the cache"
