"""`init` describes a file or a dataset, and then puts it into the repository."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Project, committed, contents
from custom_files import jsonl
from datasets import ClassLabel, Dataset, Features, Value
from demo_pairs import pairs
from hub import Hub
from pipeline.tabular.file_format import FileFormat

from pipeline.core.messages import UserError
from pipeline.core.yaml12 import load_yaml
from pipeline.init import init, options_parser
from pipeline.onboarding.header import guess_header
from pipeline.onboarding.params_file import edit_values
from pipeline.onboarding.profile import choose_columns, profile
from pipeline.onboarding.user_data import read_files

NAMES = ["bad", "good"]
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def write_reviews(path: Path, rows: int = 60) -> Path:
    """Write a CSV file with the columns id, review and stars: distinct texts and two labels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    reviews = [{"review": text, "stars": NAMES[label]} for text, _, label in pairs(rows)]
    pd.DataFrame(reviews).to_csv(path, index_label="id")
    return path


# Edit params.yaml


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("data.name", "Reviews of 2024", "  name: Reviews of 2024"),
        ("data.label_column_name", None, "  label_column_name:        # the column of"),
        ("data.label_column_name", ["toxic", "insult"], "  label_column_name: [toxic, insult] # the column of"),
        ("data.split.column", "author", "    column: author"),
        ("data.split.fractions", [0.6, 0.2, 0.2], "    fractions: [0.6, 0.2, 0.2]"),
        ("data.id2label", {"0": "bad"}, "  id2label: {'0': bad}"),
        ("data.slice_columns", ["a: b", "c # d"], "  slice_columns: [\"a: b\", 'c # d']"),
        ("data.header", False, "  header: false"),
        ("data.delimiter", "\t", '  delimiter: "\\t"'),
    ],
)
def test_editing_a_value_changes_its_lines_and_no_others(key: str, value: Any, line: str) -> None:
    before = committed("params.yaml")
    after = edit_values(before, {key: value})
    expected = load_yaml(before)
    *sections, name = key.split(".")
    section = expected
    for part in sections:
        section = section[part]
    section[name] = value
    assert load_yaml(after) == expected
    [added] = set(after.splitlines()) - set(before.splitlines())
    assert added.startswith(line)
    removed = set(before.splitlines()) - set(after.splitlines())
    assert all(re.match(rf" +({name}:|- )", text) for text in removed), "comments and other keys stay"


@pytest.mark.parametrize(
    "value",
    [
        "x " * 200, "yes", "null", "007", "1e3", "~", "- a", "a: b", "#1", "über", "名前", "🙂", "a\tb", 'say "hi"',
        "it's", " a ", "*", "=", "a\x7fb", "why?", ":)",
    ],
)  # fmt: skip
def test_any_text_can_be_a_value(value: str) -> None:
    for name in (value, [value], {value: value}):
        text = edit_values("data:\n  name:  # a comment\n  other: 1\n", {"data.name": name})
        assert load_yaml(text) == {"data": {"name": name, "other": 1}}
        assert "# a comment\n  other: 1\n" in text


def test_a_value_can_be_edited_again() -> None:
    before = committed("params.yaml")
    once = edit_values(before, {"data.splits": {"train": "all"}, "data.slice_columns": ["a", "b"]})
    assert once != before
    assert edit_values(once, {"data.splits": None, "data.slice_columns": []}) == before, "comments stay"


# Columns


def columns(**values: list[Any]) -> list[Any]:
    return [profile(name, pd.Series(column, dtype=object)) for name, column in values.items()]


LONG = [f"a longer text about number {number}" for number in range(20)]
SHORT = [f"name {number}" for number in range(20)]
OBJECTS = [[{"id": number}] for number in range(20)]
URLS = [f"https://example.com/reviews/2024/from-a-customer/{number}" for number in range(20)]
FEW = ["a", "b"] * 10
NUMBERS = [str(number) for number in range(20)]
FRACTIONS = [f"{number / 10}" for number in range(20)]


@pytest.mark.parametrize(
    ("values", "texts", "label"),
    [
        ({"id": NUMBERS, "review": LONG, "stars": ["1", "2"] * 10}, ["review"], "stars"),
        ({"Sentence1": LONG, "sentence2": LONG, "gold": FEW}, ["Sentence1", "sentence2"], "gold"),
        ({"hypothesis": LONG, "premise": LONG, "label": FEW}, ["premise", "hypothesis"], "label"),
        ({"question": SHORT, "sentence": LONG, "label": FEW}, ["question", "sentence"], "label"),
        ({"claim": SHORT, "evidence": LONG, "label": FEW}, ["claim", "evidence"], "label"),
        ({"title": SHORT, "text": LONG, "label": FEW, "category": FEW}, ["text"], "label"),
        ({"who": SHORT, "what": LONG, "kind": FEW}, ["what"], "kind"),
        ({"id": NUMBERS, "what": LONG, "grade": FRACTIONS}, ["what"], "grade"),
        ({"day": ["2024-01-01", "2024-01-02"] * 10, "what": LONG, "group": FEW}, ["what"], "group"),
        ({"what": LONG, "tags": [["a"], ["b"]] * 10}, ["what"], "tags"),
        ({"text": LONG, "toxicity": FEW, "split": ["train", "Test"] * 10}, ["text"], "toxicity"),
        ({"text": LONG, "transport": ["train", "bus"] * 10}, ["text"], "transport"),
        ({"Title": SHORT, "Review Text": LONG, "label": FEW}, ["Review Text"], "label"),
        ({"Subject": SHORT, "EmailText": LONG, "label": FEW}, ["EmailText"], "label"),
        ({"title": SHORT, "selftext": LONG, "label": FEW}, ["selftext"], "label"),
        ({"title": LONG, "selftext": SHORT, "label": FEW}, ["title"], "label"),
        ({"reviews.title": SHORT, "reviews.text": LONG, "label": FEW}, ["reviews.text"], "label"),
        ({"text-a": LONG, "text-b": LONG, "Star Rating": FEW, "label": FEW}, ["text-a", "text-b"], "label"),
        ({"what": LONG, "lead_time": FRACTIONS, "choice": FRACTIONS}, ["what"], "choice"),
        ({"what": LONG, "mood": FEW, "mood confidence": ["0.5", "1.0"] * 10}, ["what"], "mood"),
        ({"what": LONG, "Time of day": FEW}, ["what"], "Time of day"),
        ({"what": LONG, "score": FRACTIONS}, ["what"], "score"),
        ({"Page URL": URLS, "what": LONG, "label": FEW}, ["what"], "label"),
        ({"text": [f"{number}文" for number in range(20)], "label": FEW}, ["text"], "label"),
        ({"what": [f"{number}文" for number in range(20)], "label": FEW}, ["what"], "label"),
        ({"what": LONG, "survey": ["a long title of the survey"] * 20, "mood": FEW}, ["what"], "mood"),
    ],
)
def test_texts_and_labels_are_found_by_name_and_by_shape(
    values: dict[str, list[Any]], texts: list[str], label: str
) -> None:
    assert [names for names, _ in choose_columns(columns(**values), [], [])] == [texts, [label]]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"text": LONG, "a": FEW, "b": FEW}, "several .* label: a, b. .*several labels.*: --label NAME --label NAME"),
        ({"text": LONG, "category": FEW, "sentiment": FEW}, "several columns .*: category, sentiment.*--label"),
        ({"left": LONG, "right": LONG, "label": FEW}, "several columns could be the text: left, right.*--text"),
        ({"text": LONG, "Duration (in seconds)": FRACTIONS}, "looks like labels: text, Duration.*--label"),
        ({"text": LONG, "results": OBJECTS}, "looks like labels: text, results.*export the data in a flat format"),
        ({"text": LONG, "id": NUMBERS}, "looks like labels: text, id.*--label"),
        ({"number": NUMBERS, "label": FEW}, "looks like texts: number, label.*--text"),
    ],
)
def test_an_ambiguous_choice_names_the_candidates_and_the_option(values: dict[str, list[Any]], error: str) -> None:
    with pytest.raises(UserError, match=error):
        choose_columns(columns(**values), [], [])


def test_the_users_choice_wins_and_a_misspelled_column_is_an_error() -> None:
    table = columns(text=LONG, other=LONG, label=FEW, topic=FEW)
    assert [names for names, _ in choose_columns(table, ["other"], ["topic"])] == [["other"], ["topic"]]
    with pytest.raises(UserError, match=r'"topics".*Did you mean "topic"'):
        choose_columns(table, [], ["topics"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "2.5", ""], "number"),
        (["Yes", "no"], "yes/no"),
        (["2024-01-01", "2024-12-31T10:00"], "date"),
        (["2024-12", " 2025"], "date"),
        (["2024-12", "2024-W52-1"], "text"),
        (["Train", "dev", ""], "split"),
        (["training", "testing", "eval"], "split"),
        (["train", "train"], "text"),
        (["test", "dev"], "text"),
        (["a", "1"], "text"),
        ([["a"], []], "list"),
        ([None, " ", float("nan")], "empty"),
    ],
)
def test_the_type_of_a_column(values: list[Any], expected: str) -> None:
    column = columns(name=values)[0]
    assert column.type == expected
    assert column.missing == sum(value in (None, "", " ") or value != value for value in values)


def snapshot(directory: Path) -> dict[str, bytes]:
    """Return the bytes of all files, without git's and DVC's own files."""
    files = contents(directory).items()
    return {name: content for name, content in files if not re.search(r"^\.(git|dvc)/|__pycache__", name)}


# The command, in a real project


def run_init(project: Project, *arguments: str | Path, ok: bool = True, **env: str) -> str:
    return project.run("python", "-m", "pipeline.init", *map(str, arguments), ok=ok, **env)


@pytest.mark.slow
def test_init_describes_a_file_and_dvc_repro_accepts_it(project: Project, tmp_path: Path) -> None:
    for name in ("evaluation.json", "report.html", "plots/history.csv"):
        path = project.root / "metrics" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("of the example")
    (project.root / "dvc.lock").write_text("schema: '2.0'\n")
    project.commit("an example")
    (project.root / "metrics/mine.txt").write_text("my notes")
    source = write_reviews(tmp_path / "Film reviews.csv")
    with source.open("a") as file:
        file.write("60,,good\n")
    before = snapshot(project.root)

    out = run_init(project, source, "--dry-run")
    assert snapshot(project.root) == before
    assert re.search(r'^Text: "review", because .*--text', out, re.M)
    assert re.search(r'^Label: "stars", because .*--label', out, re.M)
    assert re.search(r"^review +text +60 +1 \(1\.6%\)", out, re.M), "a table of the columns"
    assert re.search(r"problem_type single_label_classification: .*2 distinct values", out)
    assert re.search(r"^bad +\d+ \(\d+\.\d%\) +\d \(\d+\.\d%\) +\d \(\d+\.\d%\)$", out, re.M), "a table of the classes"
    assert 'The positive class is "good"' in out
    assert "data.on_missing: drop" in out and "1 of 61" in out
    assert re.search(r"^\+  text_column_names: \[review\]$", out, re.M), "the difference"

    out = run_init(project, source)
    assert "With --fresh, init removes them" in out
    assert "autostage" not in out, "no hints of DVC"
    assert (project.root / "data/custom/train.csv").read_bytes() == source.read_bytes()
    data = project.params()["data"]
    assert (data["task"], data["name"], data["label_column_name"]) == ("custom", "Film reviews", "stars")
    assert (data["text_column_names"], data["on_missing"], data["delimiter"]) == (["review"], "drop", None)
    changed = project.git("status", "--porcelain", "--untracked-files=all").split("\n")
    assert changed == [
        " M params.yaml", "?? data/custom/.gitignore", "?? data/custom/train.csv.dvc", "?? metrics/mine.txt", "",
    ]  # fmt: skip

    out = run_init(project, source, ok=False)
    assert re.search(r"^error: data/custom is not empty \(train\.csv, train\.csv\.dvc\)\. Use --force", out, re.M)
    out = run_init(project, source, "--dry-run")
    assert "params.yaml stays as it is." in out
    with (project.root / "data/custom/.gitignore").open("a") as file:
        file.write("/secret.txt\n")
    (project.root / "data/custom/notes").mkdir()

    other = tmp_path / "other.jsonl"
    other.write_text(jsonl([(text, number / 10) for number, (text, *_) in enumerate(pairs(40))]))
    run_init(project, other, "--force", "--fresh", "--name", "Numbers")
    names = {path.name for path in (project.root / "data/custom").iterdir()}
    assert names == {".gitignore", ".gitkeep", "train.jsonl", "train.jsonl.dvc"}
    assert (project.root / "data/custom/.gitignore").read_text() == "/secret.txt\n/train.jsonl\n"
    assert (project.root / "metrics/mine.txt").exists(), "a file of the user"
    (project.root / "metrics/mine.txt").unlink()
    left = {path.name for path in (project.root / "metrics").rglob("*") if path.is_file()}
    assert left == {".gitignore"}
    assert not (project.root / "dvc.lock").exists()
    assert project.repro("download") == ["check", "download"]
    card = json.loads((project.root / "data/raw/data_card.json").read_text())
    assert card["splits"]["train"]["rows"] == 32


@pytest.fixture
def repository(project: Project) -> Project:
    """The project without data of the user."""
    project.git("reset", "--quiet", "--hard")
    project.git("clean", "--quiet", "--force", "-dx", "data/custom", "dvc.lock")
    return project


@pytest.mark.parametrize(
    ("content", "arguments", "error"),
    [
        ("text,label\na,1\nb,x\nc,2\n", [], r"reviews\.csv line 3: .*\"label\" is 'x', .*Without init"),
        ("text,label\na,b\nc,d\n", ["--text", "txt"], r'reviews\.csv has no column "txt".*Did you mean "text"'),
        (
            '"text,label"\n"a,b"\n"c,d"\n',
            [],
            r"reviews\.csv must have a column .* are: text,label\. Give .*--delimiter",
        ),
        ("text,day\na,2024-01-01\nb,2024-01-02\n", ["--label", "day"], r'"day" contains dates\. .*--problem-type'),
        (
            "text,label\na,b\nc,d\n",
            ["--problem-type", "regression"],
            r"reviews\.csv line 2: .*\"label\" is 'b'.* use --problem-type",
        ),
    ],
)
def test_bad_input_is_an_error_that_names_the_users_file_and_nothing_is_written(
    content: str, arguments: list[str], error: str, repository: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "reviews.csv"
    source.write_text(content)
    monkeypatch.chdir(repository.root)
    before = snapshot(repository.root)
    with pytest.raises(UserError, match=error):
        init(str(source), options_parser().parse_args([str(source), *arguments]))
    assert snapshot(repository.root) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["my.csv", "--config", "a"],
        ["hf://a/b", "--no-header"],
    ],
)
def test_an_option_for_another_type_of_source_is_rejected(arguments: list[str]) -> None:
    source, option, *_ = arguments
    with pytest.raises(UserError, match=rf"^{option} is only for "):
        init(source, options_parser().parse_args(arguments))


def test_if_dvc_fails_the_settings_and_the_results_stay(repository: Project, tmp_path: Path) -> None:
    with (repository.root / "dvc.yaml").open("a") as file:
        file.write("\nnonsense: 1\n")  # DVC rejects an unknown section
    before = snapshot(repository.root)
    out = run_init(repository, write_reviews(tmp_path / "r.csv"), "--fresh", ok=False)
    assert re.search('^error: "dvc add" failed, .*--force', out, re.M)
    after = snapshot(repository.root)
    assert after.pop("data/custom/train.csv") == (tmp_path / "r.csv").read_bytes()
    assert after == before


def test_an_interrupted_command_can_be_repeated(repository: Project, tmp_path: Path) -> None:
    write_reviews(repository.root / "data/custom/train.csv", 30)
    source = tmp_path / "r.jsonl"
    source.write_text(jsonl([(text, NAMES[label]) for text, _, label in pairs(60)]))
    command = [sys.executable, "-m", "pipeline.init", str(source), "--force"]
    process = subprocess.Popen(command, cwd=repository.root, env=repository.env, stdout=subprocess.DEVNULL)
    placed = repository.root / "data/custom/train.jsonl"
    while not placed.exists():
        assert process.poll() is None, "the command must not end before it has placed the file"
        time.sleep(0.01)
    assert placed.read_bytes() == source.read_bytes(), "files appear when they are complete"
    assert not placed.with_name("train.csv").exists(), "the new files replace all of the earlier ones at once"
    process.terminate()  # "dvc add" takes a second. On a busy machine, it may be over by now.
    assert process.wait() in (128 + signal.SIGTERM, 0)
    run_init(repository, source, "--force")
    assert sorted(path.name for path in placed.parent.glob("t*")) == ["train.jsonl", "train.jsonl.dvc"]


def test_files_in_data_custom_are_used_where_they_are(repository: Project, tmp_path: Path) -> None:
    source, custom = tmp_path / "my data", repository.root / "data/custom"
    write_reviews(source / "train" / "part-1.csv", 40)
    write_reviews(source / "dev.csv", 20)
    with (source / "dev.csv").open("a") as file:
        file.write("20,a text,-1\n")
    (source / "test.csv").write_text("id,review\n1,a text without a label\n")
    (custom / "train").mkdir()
    for name in ("train/part-1.csv", "dev.csv", "test.csv"):
        (custom / name).symlink_to(source / name)
    before = snapshot(repository.root / "data")
    out = run_init(repository, custom)
    assert re.findall(r"^  (\w+): (\d+) texts", out, re.M) == [("train", "40"), ("validation", "20"), ("test", "1")]
    assert 'run "dvc add data/custom/FILE && git add data/custom"' in out
    assert repository.params()["data"]["on_missing"] == "drop", "the label of a row of validation is not known"
    out = run_init(repository, custom / "dev.csv", "--force", ok=False)
    assert re.search(r"^error: .*dev\.csv is already in data/custom", out, re.M), "the other files must not be lost"
    assert snapshot(repository.root / "data") == before
    repository.git("add", "data/custom/dev.csv")
    assert repository.repro("download") == ["check", "download"]
    assert json.loads((repository.root / "data/raw/task.json").read_text())["unlabeled_splits"] == ["test"]

    run_init(repository, source, "--force")
    assert contents(custom / "train") == contents(source / "train"), "the user's files are still there"
    assert not any(path.is_symlink() for path in custom.rglob("*"))
    assert {path.name for path in custom.glob("*.dvc")} == {"train.dvc", "test.csv.dvc"}, "git tracks dev.csv"


@pytest.mark.parametrize(("on_leakage", "unlabeled"), [("warn", True), ("drop", False)])
def test_on_missing_is_drop_only_if_rows_are_dropped_for_it(
    on_leakage: str, unlabeled: bool, repository: Project, tmp_path: Path
) -> None:
    """With several labels, an empty field means none of them. Leaked rows are dropped for another reason."""
    repository.set("data.on_leakage", on_leakage)
    texts = [text for text, *_ in pairs(60)]
    if unlabeled:
        source = tmp_path / "r.parquet"
        features = Features({"text": Value("string"), "label": ClassLabel(names=NAMES)})
        Dataset.from_dict({"text": texts, "label": [0, 1, -1] * 20}, features).to_parquet(source)
    else:
        source = tmp_path / "r.csv"
        pd.DataFrame({"text": texts * 2, "label": ["toxic|insult", "toxic", ""] * 40}).to_csv(source, index=False)
    out = run_init(repository, source)
    assert repository.params()["data"]["on_missing"] == ("drop" if unlabeled else "error")
    assert ("They will be dropped" in out) == unlabeled
    assert ("rows that are also in validation or test" in out) == (on_leakage == "drop")
    assert not unlabeled or re.search(r"^label +text +2 .*'bad'", out, re.M), "names of classes, not numbers"


def test_settings_for_the_earlier_data_are_reset(repository: Project, tmp_path: Path) -> None:
    text = edit_values((repository.root / "params.yaml").read_text(), {
        "data.slice_columns": ["source"], "data.split.type": "group", "data.split.column": "author",
        "data.split.seed": 7, "data.on_missing": "drop", "train.class_weights": {"cat": 2},
        "train.metric_for_best_model": "pearson", "evaluate.metrics": ["roc_auc"],
    })  # fmt: skip
    (repository.root / "params.yaml").write_text(text)
    source = write_reviews(tmp_path / f"{'long name ' * 10}" / "train.csv").parent
    run_init(repository, source)
    params = repository.params()
    assert params["data"]["name"] == source.name[:80]
    assert params["data"]["slice_columns"] == []
    assert (params["data"]["split"]["type"], params["data"]["split"]["column"]) == ("stratify", None)
    assert params["data"]["split"]["seed"] == 7
    assert params["data"]["on_missing"] == "error"
    assert (params["train"]["class_weights"], params["train"]["metric_for_best_model"]) == (None, None)
    assert params["evaluate"]["metrics"] == ["roc_auc"], "it fits the new data"


def test_fields_inside_json_objects_are_columns(repository: Project, tmp_path: Path) -> None:
    lines = [{"review": {"text": text, "n": n}, "label": NAMES[label]} for n, (text, _, label) in enumerate(pairs(40))]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = run_init(repository, tmp_path / "r.jsonl", "--dry-run")
    assert re.search(r"^\+  text_column_names: \[review\.text\]$", out, re.M)
    assert re.search(r"^review\.n +number +40", out, re.M)


def test_objects_among_texts_stay_values(tmp_path: Path) -> None:
    """Label Studio writes a single choice as a text, and several choices as an object."""
    lines: list[dict[str, Any]] = [
        {"text": "a", "topic": "price", "by": {"name": "x"}},
        {"text": "b", "topic": {"choices": ["price", "staff"]}, "by": None},
    ]
    (tmp_path / "r.json").write_text(json.dumps(lines))
    train = read_files(tmp_path / "r.json", FileFormat(), [], infer_header=True).train
    assert list(train) == ["text", "topic", "by.name"]
    assert train["topic"].tolist() == ["price", {"choices": ["price", "staff"]}]


def test_a_dataset_of_the_hub_is_pinned(repository: Project, hub: Hub, tmp_path: Path) -> None:
    features = Features({"content": Value("string"), "label": ClassLabel(names=NAMES)})
    examples = list(pairs(60))
    rows = {"content": [text for text, *_ in examples], "label": [label for *_, label in examples]}
    Dataset.from_dict(rows, features).to_parquet(tmp_path / "train.parquet")
    commit = "0123456789" * 4
    hub.files[f"datasets/someone/reviews/{commit}/train.parquet"] = (tmp_path / "train.parquet").read_bytes()
    hub.branches["datasets/someone/reviews/main"] = commit
    env = hub.env(tmp_path / "hub home")
    out = run_init(repository, "hf://datasets/someone/reviews", **env)
    assert re.search(r"^label +text +2 .*'bad'", out, re.M), "names of classes, not numbers"
    data = repository.params()["data"]
    assert (data["task"], data["dataset"]) == ("hub", f"someone/reviews@{commit}")
    assert data["text_column_names"] == ["content"]
    assert repository.git("status", "--porcelain") == " M params.yaml\n"
    out = run_init(repository, "hf://someone/reviews", "--splits", "test=train", ok=False, **env)
    assert re.search(r"^error: .*has no split train\. .*--splits", out, re.M)


UNUSED = 'Warning: column "part" contains names of splits, but it is not used'


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (["train", "train", "dev", "test"], 'Split: "part", because'),
        (["Training", "training", "eval", "testing"], 'Split: "part", because'),
        (["train", "train", "train", "test"], UNUSED),
        (["train", "train", "dev", ""], UNUSED),
    ],
)
def test_a_column_with_the_split_of_each_row_is_used(
    parts: list[str],
    message: str,
    repository: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = [{"text": text, "toxicity": NAMES[label]} for text, _, label in pairs(40)]
    pd.DataFrame(table).assign(part=parts * 10).to_csv(tmp_path / "r.csv", index=False)
    monkeypatch.chdir(repository.root)
    options = options_parser().parse_args([str(tmp_path / "r.csv"), "--dry-run"])
    init(options.source, options)
    out = capsys.readouterr().out
    assert message in out
    is_used = message != UNUSED
    assert bool(re.search(r"^\+    column: part$", out, re.M)) == is_used
    assert bool(re.search(r"^\+    type: fixed$", out, re.M)) == is_used
    assert bool(re.search(r"test: 10 texts", out)) == is_used


def test_several_columns_of_0_and_1_are_mentioned(
    repository: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = [{"text": text, "toxic": label, "very rude": 1 - label} for text, _, label in pairs(40)]
    pd.DataFrame(table).to_csv(tmp_path / "r.csv", index=False)
    monkeypatch.chdir(repository.root)
    for labels, is_mentioned in (([], True), (["--label", "toxic"], False)):
        options = options_parser().parse_args([str(tmp_path / "r.csv"), "--dry-run", *labels])
        init(options.source, options)
        out = capsys.readouterr().out
        assert ("name each column: --label toxic --label 'very rude'\n" in out) == is_mentioned


@pytest.mark.parametrize(("columns", "error"), [([], None), (["text"], None), (["Points"], '2 columns named "Points"')])
def test_columns_with_the_same_name_are_an_error_only_if_they_are_used(
    columns: list[str], error: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "form.csv").write_text("Points,text,Points,label\n1,Great,2,good\n3,Awful,4,bad\n")
    if error:
        with pytest.raises(UserError, match=error):
            read_files(tmp_path / "form.csv", FileFormat(), columns, infer_header=True)
    else:
        train = read_files(tmp_path / "form.csv", FileFormat(), columns, infer_header=True).train
        assert sorted(train) == ["Points", "label", "text"]
        assert 'form.csv has 2 columns named "Points". Only the last one is read.' in caplog.text


def test_a_file_without_a_header_is_recognized(repository: Project, tmp_path: Path) -> None:
    source = tmp_path / "reviews.csv"
    write_reviews(source)
    source.write_text(source.read_text().partition("\n")[2])
    out = run_init(repository, source, "--dry-run")
    assert "--header" in out
    assert re.search(r"^\+  header: false$", out, re.M)
    assert re.search(r"^\+  text_column_names: \[column_2\]$", out, re.M)


def test_rows_that_were_rejected_in_prodigy_are_a_warning(repository: Project, tmp_path: Path) -> None:
    table = pd.DataFrame([{"text": text, "label": NAMES[label]} for text, _, label in pairs(40)])
    for answers, warns in ((["accept", "reject"], True), (["accept", "accept"], False), (["yes", "no"], False)):
        table.assign(answer=20 * answers).to_json(tmp_path / "annotated.jsonl", orient="records", lines=True)
        out = run_init(repository, tmp_path / "annotated.jsonl", "--dry-run")
        assert ("rows were rejected or ignored in Prodigy" in out) == warns


@pytest.mark.parametrize(
    ("label", "answers", "arguments", "message"),
    [
        ({"label": "POSITIVE"}, ["accept", "reject"], [], "Use --label answer, so that rejected rows are the negative"),
        ({"label": "POSITIVE"}, ["accept", "reject"], ["--label", "answer"], None),
        ({"label": "POSITIVE"}, ["accept", "ignore", "reject"], ["--label", "answer"], "rows were ignored in Prodigy"),
        ({"accept": ["bad"]}, ["accept", "reject"], [], "rows were rejected or ignored in Prodigy"),
        ({"accept": ["bad"]}, ["accept", "reject"], [], 'Label: "accept", because'),
    ],
)
def test_the_answers_of_prodigy_are_labels_only_if_there_are_no_others(
    label: dict[str, Any],
    answers: list[str],
    arguments: list[str],
    message: str | None,
    repository: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    examples = enumerate(text for text, *_ in pairs(60))
    table = [{"text": text, **label, "answer": answers[number % len(answers)]} for number, text in examples]
    if "accept" in label:
        table[::3] = [{**row, "accept": ["good"]} for row in table[::3]]
    pd.DataFrame(table).to_json(tmp_path / "r.jsonl", orient="records", lines=True)
    monkeypatch.chdir(repository.root)
    options = options_parser().parse_args([str(tmp_path / "r.jsonl"), "--dry-run", *arguments])
    if label == {"label": "POSITIVE"} and not arguments:
        with pytest.raises(UserError, match="is always 'POSITIVE'"):
            init(options.source, options)
    else:
        init(options.source, options)
    out = capsys.readouterr().out
    assert message in out if message else "Prodigy" not in out


def test_a_common_name_that_is_also_a_value_is_not_a_header() -> None:
    rows = [["question", "Are you there?"], ["statement", "I am."], ["question", "Who?"]]
    assert not guess_header(rows)
    assert guess_header([["text", "act"], *rows])
    assert guess_header([["comment", "2020_2021"], *rows]), "this is not a number"
    assert guess_header([["Review Text", "2020"], *rows]), "names may have spaces"


@pytest.mark.parametrize("is_second_header", [True, False])
def test_a_second_row_with_names_of_columns_is_mentioned(
    is_second_header: bool,
    repository: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [["100", "True", text, NAMES[label]] for text, _, label in pairs(40)]
    names = [["Progress", "Finished", "Q1", "Q2"], ["Progress", "Finished", "How was it?", "Your mood"]]
    table = [*names, *rows] if is_second_header else [row[2:] for row in rows]
    pd.DataFrame(table).to_csv(tmp_path / "r.csv", index=False, header=False)
    monkeypatch.chdir(repository.root)
    options = options_parser().parse_args([str(tmp_path / "r.csv"), "--dry-run"])
    if is_second_header:
        with pytest.raises(UserError, match="label"):
            init(options.source, options)
    else:
        init(options.source, options)
    out = capsys.readouterr().out
    assert ("The second row repeats names of columns (Progress, Finished)." in out) == is_second_header
    assert ("The first row looks like data." in out) != is_second_header


@pytest.mark.parametrize(
    ("columns", "infer_header", "header"),
    [(["mail", "spam"], True, True), (["column_1"], True, False), ([], True, False), ([], False, True)],
)
def test_a_row_with_the_columns_that_the_user_names_is_a_header(
    columns: list[str], infer_header: bool, header: bool, tmp_path: Path
) -> None:
    source = tmp_path / "mails.csv"
    source.write_text("mail,spam\nBuy now,spam\nSee you soon,ham\n")  # The name "spam" is also a value.
    assert read_files(source, FileFormat(), columns, infer_header).values["header"] == header
