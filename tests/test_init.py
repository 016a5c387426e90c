"""`init` shows a file or a dataset, and then puts it into the repository."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Project, committed, contents
from custom_files import rows
from datasets import ClassLabel, Dataset, Features, Value
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.core.yaml12 import load_yaml
from pipeline.init import init, options_parser
from pipeline.params import load_params
from pipeline.sources.columns import choose_labels, choose_split, choose_texts, read_columns
from pipeline.sources.files import visible_entries
from pipeline.sources.loading import load_custom
from pipeline.sources.params_file import edit_values
from pipeline.sources.tables import Table

NAMES = ["bad", "good"]


def reviews(count: int = 60) -> pd.DataFrame:
    """Return distinct texts with two labels."""
    return pd.DataFrame(rows(count, NAMES), columns=["review", "stars"])


# Edit params.yaml


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("name", "Reviews of 2024", "  name: Reviews of 2024"),
        ("label_column_name", ["toxic", "insult"], "  label_column_name: [toxic, insult] # the column of"),
        ("id2label", {"0": "bad"}, "  id2label: {'0': bad}"),
        ("delimiter", "\t", '  delimiter: "\\t"'),
        ("slice_columns", ["a", "b"], "  slice_columns: [a, b]"),
    ],
)
def test_editing_a_value_changes_its_line_and_no_other(key: str, value: Any, line: str) -> None:
    before = committed("params.yaml")
    after = edit_values(before, {f"data.{key}": value})
    [added] = set(after.splitlines()) - set(before.splitlines())
    assert added.startswith(line)
    undone = edit_values(after, {f"data.{key}": load_yaml(before)["data"][key]})
    assert undone.split() == before.split(), "comments stay"


@pytest.mark.parametrize("value", ["x " * 200, "yes", "null", "007", "1e3", "- a", "a: b", "#1", "a\tb", " a ", "why?"])
def test_any_text_can_be_a_value(value: str) -> None:
    for name in (value, [value], {value: value}):
        text = edit_values("data:\n  name:  # a comment\n  other: 1\n", {"data.name": name})
        assert load_yaml(text) == {"data": {"name": name, "other": 1}}
        assert "# a comment\n  other: 1\n" in text


# Columns

LONG = [f"a longer text about number {number}" for number in range(20)]
SHORT = [f"name {number}" for number in range(20)]
FEW = ["a", "b"] * 10
NUMBERS = [str(number) for number in range(20)]


def columns(**values: list[Any]) -> list[Any]:
    return read_columns(Table("my.csv", pd.DataFrame(values, dtype=object)))


@pytest.mark.parametrize(
    ("values", "texts", "label"),
    [
        ({"id": NUMBERS, "review": LONG, "stars": FEW}, ["review"], "stars"),
        ({"Sentence_1": LONG, "sentence 2": LONG, "gold": FEW}, ["Sentence_1", "sentence 2"], "gold"),
        ({"hypothesis": LONG, "premise": LONG, "label": FEW}, ["premise", "hypothesis"], "label"),
        ({"question": SHORT, "sentence": LONG, "label": FEW}, ["question", "sentence"], "label"),
        ({"title": LONG, "text": LONG, "label": FEW, "source": FEW}, ["text"], "label"),
        ({"text": SHORT, "Score": NUMBERS}, ["text"], "Score"),
        ({"what": LONG, "tags": [["a"], ["b"]] * 10, "same": ["a long text"] * 20}, ["what"], "tags"),
    ],
)  # fmt: skip
def test_texts_and_labels_are_chosen_by_name_or_if_only_one_column_fits(
    values: dict[str, list[Any]], texts: list[str], label: str
) -> None:
    assert choose_labels(columns(**values)) == [label]
    del values[label]
    assert choose_texts(columns(**values)) == texts


@pytest.mark.parametrize(
    ("choose", "values", "error"),
    [
        (choose_labels, {"text": LONG, "a": FEW, "b": FEW}, "labels: a, b\\..*--label.*0 and 1"),
        (choose_labels, {"text": LONG, "id": NUMBERS}, "labels: text, id\\..*--label"),
        (choose_texts, {"left": LONG, "right": LONG}, "texts: left, right\\..*--text"),
        (choose_texts, {"number": NUMBERS, "name": SHORT}, "texts: number, name\\..*--text"),
    ],
)  # fmt: skip
def test_an_unclear_choice_lists_the_candidates_and_the_option(
    choose: Callable[..., Any], values: dict[str, list[Any]], error: str
) -> None:
    with pytest.raises(UserError, match=error):
        choose(columns(**values))


@pytest.mark.parametrize(
    ("values", "used", "not_used"),
    [
        ({"Split": ["Train", "dev", "test", "training"] * 5}, "Split", []),
        ({"fold": ["1", "2"] * 10, "set": ["train", "valid"] * 10}, "set", ["fold"]),
        ({"split": ["train", "dev", "holdout", "train"] * 5}, None, ["split"]),
        ({"split": ["train", "dev", "test", ""] * 5}, None, ["split"]),
        ({"transport": ["train", "dev"] * 10}, None, []),
    ],
)
def test_a_column_that_is_named_like_a_split_is_used_if_it_has_words_for_splits(
    values: dict[str, list[Any]], used: str | None, not_used: list[str]
) -> None:
    assert choose_split(columns(**values)) == (used, not_used)


# The command, in a real project

Run = Callable[..., str]


@pytest.fixture
def repository(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project without data of the user, as the working directory."""
    project.git("reset", "--quiet", "--hard")
    project.git("clean", "--quiet", "--force", "-dx", "data/custom", "dvc.lock", "metrics")
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("HOME", project.env["HOME"])
    return project


@pytest.fixture
def run(repository: Project, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run init in this process, and return what it prints."""

    def run_init(*arguments: str | Path) -> str:
        options = options_parser().parse_args([*map(str, arguments)])
        init(options.source, options)
        return capsys.readouterr().out

    return run_init


def snapshot() -> dict[str, bytes]:
    """Return the bytes of all files of the repository, without git's and DVC's own files."""
    files = contents(Path()).items()
    return {name: content for name, content in files if not re.search(r"^\.(git|dvc)/|__pycache__", name)}


def test_init_shows_a_file_and_puts_it_into_the_repository(repository: Project, run: Run, tmp_path: Path) -> None:
    source = tmp_path / "Film reviews.csv"
    reviews().assign(headline=[f"a headline with number {n}" for n in range(60)]).to_csv(source, index=False)
    with source.open("a") as file:
        file.write(",good,\nno label,,\n")
    before = snapshot()
    out = run(source, "--dry-run")
    assert snapshot() == before
    assert re.search(r"^review +61 +1\.6% +\d+  '", out, re.M), "the columns"
    assert re.search(r"^Not used: headline\..*--text NAME --text NAME", out, re.M)
    assert re.search(r"^'bad' +\d+ \(\d+\.\d%\) +\d \(\d+\.\d%\) +\d \(\d+\.\d%\)$", out, re.M), "the labels"
    assert re.search(r"^warning: .*without a text: 1 of 62.*without a label: 1 of 62.*'good' 1", out, re.M)
    assert re.search(r"^\+  text_column_names: \[review\]$", out, re.M), "the difference"

    out = run(source)
    assert re.search(r"^  git add data/custom && git commit", out, re.M)
    assert "pipeline.folds" in out, "60 rows are few"
    assert Path("data/custom/train.csv").read_bytes() == source.read_bytes()
    data = repository.params()["data"]
    assert (data["task"], data["name"], data["label_column_name"]) == ("custom", "Film reviews", "stars")
    assert (data["text_column_names"], data["on_missing"]) == (["review"], "drop")
    changed = repository.git("status", "--porcelain", "--untracked-files=all").split("\n")
    assert changed == [" M params.yaml", "?? data/custom/.gitignore", "?? data/custom/train.csv.dvc", ""]


def test_files_are_replaced_only_with_force_and_results_removed_only_with_fresh(
    repository: Project, run: Run, tmp_path: Path
) -> None:
    Path("dvc.lock").write_text("schema: '2.0'\n")
    Path("metrics/evaluation.json").write_text("{}")
    repository.git("add", "dvc.lock", "metrics")
    Path("metrics/report.html").write_text("of the example")
    Path("metrics/mine.txt").write_text("my notes")
    for name in ("notes/a.txt", ".hidden/notes/a.txt"):
        Path("data/custom", name).parent.mkdir(parents=True)
        Path("data/custom", name).write_text("a note")
    reviews().to_csv(tmp_path / "r.csv", index=False)
    before = snapshot()
    with pytest.raises(UserError, match=r"data/custom is not empty \(notes\).*--force"):
        run(tmp_path / "r.csv", "--fresh")
    assert snapshot() == before
    run(tmp_path / "r.csv", "--force")
    assert [path.name for path in visible_entries(Path("data/custom"))] == ["train.csv", "train.csv.dvc"]
    assert Path("data/custom/.hidden/notes/a.txt").exists()
    assert Path("dvc.lock").exists()
    run("data/custom", "--fresh")
    assert {path.name for path in Path("metrics").rglob("*") if path.is_file()} == {".gitignore", "mine.txt"}
    assert not Path("dvc.lock").exists()


TABLE = "text,label\na,b\nc,d\n"


@pytest.mark.parametrize(
    ("source", "content", "arguments", "error"),
    [
        ("r.csv", f"{TABLE}e\n", [], r"r\.csv line 4: .*1 field"),
        ("r.csv", TABLE, ["--text", "txt"], r'r\.csv has no column "txt".*Did you mean "text"'),
        ("r.csv", TABLE, ["--problem-type", "regression"], r"r\.csv line 2: .*'b'"),
        ("r.csv", TABLE, ["--encoding", "utf-9"], '--encoding must be .*"utf-9"'),
        ("r.csv", TABLE, ["--config", "x"], "--config .* only for datasets"),
        ("r.xlsx", "PK", [], r"r\.xlsx: only \.csv"),
        ("someone/reviews", None, [], "does not exist.*hf://"),
        ("hf://a/b", None, ["--no-header"], "only for files"),
        (f"hf://a/b@{40 * '0'}", None, ["--splits", "test=train"], "--splits must look like train="),
    ],
)
def test_bad_input_is_an_error_and_nothing_is_written(
    source: str, content: str | None, arguments: list[str], error: str, run: Run, tmp_path: Path
) -> None:
    before = snapshot()
    if content:
        (tmp_path / source).write_text(content)
        source = str(tmp_path / source)
    with pytest.raises(UserError, match=error):
        run(source, *arguments)
    assert snapshot() == before


def test_if_dvc_fails_the_settings_and_the_results_stay(run: Run, tmp_path: Path) -> None:
    with Path("dvc.yaml").open("a") as file:
        file.write("\nnonsense: 1\n")  # DVC rejects an unknown section.
    reviews().to_csv(tmp_path / "r.csv", index=False)
    before = snapshot()
    with pytest.raises(UserError, match="dvc add"):
        run(tmp_path / "r.csv", "--fresh")
    after = snapshot()
    assert after.pop("data/custom/train.csv") == (tmp_path / "r.csv").read_bytes()
    assert after == before


def test_files_in_data_custom_are_used_where_they_are(repository: Project, run: Run, tmp_path: Path) -> None:
    source, custom = tmp_path / "my data", Path("data/custom")
    source.mkdir()
    reviews(40).to_csv(source / "train.csv", index=False)
    reviews(20).assign(stars=["", *NAMES * 9, "bad"]).to_csv(source / "dev.csv", index=False)
    (source / "test.csv").write_text("review\na text without a label\nanother one\n")
    for path in source.iterdir():
        (custom / path.name).symlink_to(path)
    before = contents(custom)
    out = run(custom)
    assert re.search(r"^rows +40 +19 +2$", out, re.M)
    assert 'first run "dvc add"' in out
    assert repository.params()["data"]["on_missing"] == "drop", "the label of a row of validation is missing"
    with pytest.raises(UserError, match=r"train\.csv is already in data/custom"):
        run(custom / "train.csv", "--force")  # The other files must not be lost.
    assert contents(custom) == before

    run(source, "--force")
    assert not any(path.is_symlink() for path in custom.iterdir())
    assert {path.name for path in custom.glob("*.dvc")} == {"train.csv.dvc", "dev.csv.dvc", "test.csv.dvc"}


def test_settings_for_the_earlier_data_are_reset(repository: Project, run: Run, tmp_path: Path) -> None:
    earlier = {
        "slice_columns": ["source"], "on_missing": "drop", "id2label": {"0": "no", "1": "yes"}, "label_separator": ";",
        "header": False, "problem_type": "regression", "corrections": "mine.csv",
    }  # fmt: skip
    split = {"type": "group", "column": "author", "fold": "1/5", "seed": 7}
    before = Path("params.yaml").read_text()
    values = earlier | {f"split.{key}": value for key, value in split.items()}
    Path("params.yaml").write_text(edit_values(before, {f"data.{key}": value for key, value in values.items()}))
    reviews().to_csv(tmp_path / "r.csv", index=False)
    run(tmp_path / "r.csv")
    data, default = repository.params()["data"], load_yaml(before)["data"]
    assert data["split"] == {**default["split"], "seed": 7}
    assert {key: data[key] for key in earlier} == {key: default[key] for key in earlier}


@pytest.mark.parametrize(
    ("arguments", "problem_type", "labels"),
    [
        (["--label", "stars", "--separator", "|"], "multi_label_classification", ["bad", "good"]),
        (["--label", "toxic", "--label", "insult"], "multi_label_classification", ["toxic", "insult"]),
        (["--label", "toxic", "--problem-type", "regression"], "regression", []),
    ],
)
def test_options_say_what_the_labels_are(
    arguments: list[str], problem_type: str, labels: list[str], repository: Project, run: Run, tmp_path: Path
) -> None:
    table = reviews().assign(toxic=[0, 1] * 30, insult=[1, 0, 0] * 20)
    table["stars"] = table["stars"].where(table.index % 3 > 0, "bad|good")
    table.to_csv(tmp_path / "r.csv", index=False)
    run(tmp_path / "r.csv", "--fresh", *arguments)
    task = load_custom(load_params().data).task  # what the stage download reads
    assert (task.problem_type, task.labels) == (problem_type, labels)


def test_a_dataset_of_the_hub_is_pinned(repository: Project, run: Run, hub: Hub, tmp_path: Path) -> None:
    features = Features({"content": Value("string"), "label": ClassLabel(names=NAMES)})
    columns = {"content": reviews()["review"].tolist(), "label": [0, 1] * 30}
    Dataset.from_dict(columns, features).to_parquet(tmp_path / "train.parquet")
    commit = "0123456789" * 4
    hub.files[f"datasets/someone/reviews/{commit}/train.parquet"] = (tmp_path / "train.parquet").read_bytes()
    hub.branches["datasets/someone/reviews/main"] = commit
    out = run("hf://datasets/someone/reviews")
    assert re.search(r"^label +2 .*'bad'", out, re.M), "names of classes, not numbers"
    assert "git add data/custom" not in out
    data = repository.params()["data"]
    assert (data["task"], data["dataset"]) == ("hub", f"someone/reviews@{commit}")
    assert data["text_column_names"] == ["content"]
    assert repository.git("status", "--porcelain") == " M params.yaml\n"
