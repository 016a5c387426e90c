"""`python -m pipeline.compare`, of real revisions and experiments, by real DVC."""

import html
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, Project
from sklearn.metrics import accuracy_score, f1_score
from toy import WICKED, experiment, toy_project

from pipeline.compare import as_markdown, as_text
from pipeline.comparison import Comparison, Side, compare
from pipeline.revisions import runs
from pipeline.stage import UserError
from pipeline.uncertainty import mcnemar


def command(project: Project, *arguments: str, ok: bool = True) -> str:
    return project.run("python", "-m", "pipeline.compare", *arguments, ok=ok)


def compared(a: str, b: str) -> Comparison:
    return compare(Side(a, runs(a)), Side(b, runs(b)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = toy_project(tmp_path_factory.mktemp("toy"))
    project.run("dvc", "exp", "run", "--temp", "--name", "worse", "-S", "train.lr=4e-4", "-S", "+train.extra.note=1")
    for group, lr, seeds in (("low", "5e-4", "12"), ("high", "2e-3", "12"), ("late", "2e-3", "34")):
        for seed in seeds:
            experiment(project, f"{group}-{seed}", train__lr=lr, train__seed=seed)
    for change, length in {"labels": "64", "sentences": "32", "idx": "16"}.items():
        experiment(project, f"other-{change}", tokenize__max_length=length)
    project.run("dvc", "checkout", "--quiet", "--force")
    return project


@pytest.fixture
def toy(made: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A committed result, the experiments `worse` and `other-...`, and the groups `low`, `high` and `late`."""
    monkeypatch.chdir(made.root)
    return made


def predictions(project: Project, revision: str, scratch: Path) -> dict[str, list[float]]:
    project.run("dvc", "get", ".", "data/predictions/test.parquet", "--rev", revision, "-o", str(scratch / revision))
    rows: dict[str, list[float]] = pq.read_table(scratch / revision).sort_by("idx").to_pydict()
    return rows


def test_scores_and_changed_pairs_are_those_of_the_predictions(toy: Project, tmp_path: Path) -> None:
    found = compared("main", "worse")
    test = found.splits["test"]
    a, b = (predictions(toy, revision, tmp_path) for revision in ("main", "worse"))
    for side, table in ((test.a, a), (test.b, b)):
        assert side["accuracy"] == pytest.approx(accuracy_score(table["label"], table["prediction"]))
        assert side["f1"] == pytest.approx(f1_score(table["label"], table["prediction"]))
    right_a, right_b = (np.array(table["label"]) == np.array(table["prediction"]) for table in (a, b))
    assert {pair.idx for pair in test.broken} == set(np.array(a["idx"])[right_a & ~right_b].tolist())
    assert test.fixed == []
    assert test.mcnemar == pytest.approx(mcnemar(len(test.broken), 0))
    of_label = [pair.probability_b for pair in test.broken]
    assert of_label == sorted(of_label), "the surest mistake of B comes first"
    assert test.broken[0].sentence2 == WICKED
    assert found.better == "A"
    assert found.parameters == {"train.lr": (1e-3, 4e-4), "train.extra": ({}, {"note": 1})}
    assert found.environment == {"threads": (1, 2)}

    back = compared("worse", "main")
    assert back.better == "B"
    one, two = (of.splits["validation"] for of in (found, back))
    assert one.difference["f1"].value == pytest.approx(-two.difference["f1"].value)
    assert {pair.idx for pair in one.broken} == {pair.idx for pair in two.fixed}


def test_the_text_reads_well_and_gives_no_orders_to_the_terminal(toy: Project) -> None:
    text = as_text(compared("main", "worse"))
    assert text.startswith(f"A: main ({toy.git('rev-parse', 'main')[:7]})\nB: worse (")
    assert re.search(r"^test accuracy +\d\d\.\d\d +\d\d\.\d\d +-\d+\.\d\d +-\d+\.\d\d to -\d+\.\d\d$", text, re.M)
    assert re.search(r"^train\.lr +0\.001 +0\.0004$", text, re.M)
    *lines, verdict = text.splitlines()
    assert re.match(r"Verdict: B is worse: -[\d.]+ points of test accuracy, 95 % interval -[\d.]+ to -[\d.]+ ", verdict)
    assert max(map(len, lines)) <= 100
    assert all(line.isprintable() for line in lines)


def test_a_run_and_itself_are_the_same_and_nothing_is_touched(toy: Project) -> None:
    def files() -> dict[Path, int]:
        paths = [path.relative_to(toy.root) for path in toy.root.rglob("*")]
        others = {".git", "tmp", "__pycache__"}
        found = {path: (toy.root / path).stat().st_mtime_ns for path in paths if not others & set(path.parts)}
        assert Path("data/predictions/test.parquet") in found
        return found

    before = files()
    out = command(toy, "HEAD")
    assert "B: workspace" in out
    assert "Verdict: no difference: the predictions are identical, and so are the parameters" in out
    assert out.count("none differs") == 2
    assert files() == before
    assert toy.git("status", "--porcelain") == ""


def test_a_handful_of_changed_pairs_is_no_evidence(toy: Project) -> None:
    """Four pairs better and none worse: the bootstrap alone would call it sure."""
    path = toy.root / "data" / "predictions" / "test.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    for row in [row for row in rows if row["prediction"] != row["label"]][:4]:
        row["prediction"], row["probability"] = row["label"], float(row["label"])
    path.unlink()  # a link into the cache, it may be
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), path)
    found = compared("main", "workspace")
    toy.run("dvc", "checkout", "--quiet", "--force")
    of = found.splits["test"]
    assert (len(of.fixed), len(of.broken)) == (4, 0)
    assert of.difference["accuracy"].low > 0
    assert of.mcnemar == 0.125
    assert found.better is None
    assert found.verdict.startswith("no evidence of a difference: 95 % interval +")


def test_markdown_cannot_be_broken_by_a_sentence(toy: Project) -> None:
    out = as_markdown(compared("main", "worse"))
    assert out.startswith("**B is worse:")
    assert out.count("<details>") == out.count("</details>") == 1
    for row in (line for line in out.splitlines() if line.startswith("|")):
        assert row.count("|") - 1 in (3, 5), "no cell of a sentence's own making"
    cells = re.findall("<br><code>(.*?)</code> ", out)
    assert len(cells) == 3
    for shown in cells:
        assert not set(shown) & set("|<>@`[]*_!:"), "as entities these mean nothing to Markdown"
        assert html.unescape(shown) == WICKED.replace("\x1b", " ").replace("\n", " ")


def test_groups_of_other_seeds_are_not_paired_and_a_group_is_not_compared_with_a_run(toy: Project) -> None:
    assert compared("low", "late").seeds == "1, 2 of A, 3, 4 of B, not paired"
    with pytest.raises(UserError, match="low is a group of 2 runs, workspace is one run; compare it with low-1"):
        compared("low", "workspace")


def test_groups_are_compared_over_seeds_and_examples(toy: Project) -> None:
    found = compared("low", "high")
    assert found.seeds == "1, 2 of both, paired"
    assert found.parameters == {"train.lr": (5e-4, 2e-3)}
    assert found.better == "B"
    test = found.splits["test"]
    assert test.mcnemar is None
    singles = [compared(f"low-{seed}", f"high-{seed}").splits["test"] for seed in (1, 2)]
    values = [single.difference["accuracy"].value for single in singles]
    assert test.difference["accuracy"].value == pytest.approx(np.mean(values))
    text = as_text(found)
    assert "Seeds: 1, 2 of both, paired." in text
    assert "McNemar" not in text


@pytest.mark.parametrize("what", ["labels", "sentences", "idx"])
def test_other_data_are_refused(what: str, toy: Project) -> None:
    with pytest.raises(UserError) as error:
        compared("main", f"other-{what}")
    assert str(error.value) == (
        f"main and other-{what} were scored on different data: the {what} of validation differ "
        "(100 and 100 pairs); compare runs on the same pairs"
    )


def test_what_is_not_there_is_told_in_one_line(toy: Project, tmp_path: Path) -> None:
    assert command(toy, "nothing", ok=False) == (
        'error: "nothing" is no branch, tag, commit, experiment or group of seeds; '
        'see "git branch" and "dvc exp list -A"\n'
    )
    with pytest.raises(UserError, match=r'^"" is no branch'):
        compared("", "workspace")
    with pytest.raises(UserError, match=r'^HEAD~1 has no dvc\.lock; it needs a committed result: "dvc repro"'):
        compared("HEAD~1", "workspace")
    shutil.rmtree(toy.root / "data" / "predictions")
    with pytest.raises(UserError, match=r'^data/predictions/validation\.parquet is missing; run "dvc repro predict"'):
        compared("main", "workspace")
    toy.run("dvc", "checkout", "--quiet")

    outside = subprocess.run(
        ["python", "-m", "pipeline.compare", "main"],
        cwd=tmp_path, env={**toy.env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert outside.returncode == 1
    assert outside.stderr.startswith("error: ")
    assert outside.stderr.count("\n") == 1


def test_predictions_that_a_remote_alone_has_are_not_waited_for(
    toy: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone has the revisions, but no cache."""
    clone = tmp_path / "clone"
    toy.git("clone", "--quiet", ".", str(clone))
    remote = f"[core]\n    remote = near\n['remote \"near\"']\n    url = {toy.root}/.dvc/cache\n"
    (clone / ".dvc" / "config.local").write_text(remote)
    monkeypatch.chdir(clone)
    with pytest.raises(UserError) as error:
        compared("main", "main")
    assert str(error.value) == (
        'main: data/predictions is not in the cache; check it out and run "dvc pull", or run it again'
    )


def test_an_edited_params_yaml_does_not_pass_for_that_of_the_run(
    toy: Project, caplog: pytest.LogCaptureFixture
) -> None:
    toy.set("train.lr", "9e-4")
    found = compared("main", "workspace")
    toy.git("checkout", "--quiet", "params.yaml")
    assert found.parameters == {}
    assert "workspace: params.yaml has another train.lr than the run in dvc.lock, whose predictions these are" in (
        caplog.messages
    )
