"""Datasets of the Hub, from a local server with the real client."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import data_params
from custom_files import csv, examples, jsonl, read_json, read_split, rows
from datasets import Audio, ClassLabel, Dataset, Features, Image, Value
from hub import Hub

from pipeline.cleaning.source_rows import load_source_rows
from pipeline.core.messages import UserError
from pipeline.download import download
from pipeline.onboarding.user_data import read_hub
from pipeline.pin import main as pin_command
from pipeline.sources.corpus import Corpus
from pipeline.sources.fetch import pin_dataset
from pipeline.sources.hub_data import dataset_batches, load_hub, load_splits
from pipeline.tabular.reading import ColumnSelection

COMMIT, NEXT = "0123456789abcdef0123456789abcdef01234567", "76543210fedcba9876543210fedcba9876543210"
NAME = "someone/reviews"
PINNED = f"{NAME}@{COMMIT}"
TEXTS = rows(40, ["pos", "neg"])
FEATURES = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})


def labeled(count: int = 40, seed: int = 0, unlabeled: bool = False) -> Dataset:
    """Return distinct texts with class numbers. -1 means that a label is not known."""
    texts, labels = zip(*rows(count, [-1] if unlabeled else [1, 0], seed), strict=True)
    return Dataset.from_dict({"text": texts, "label": labels}, features=FEATURES)


def parquet(dataset: Dataset, tmp_path: Path) -> bytes:
    dataset.to_parquet(tmp_path / "rows.parquet")
    return (tmp_path / "rows.parquet").read_bytes()


def publish(hub: Hub, files: Mapping[str, str | bytes], commit: str = COMMIT) -> None:
    for file, content in files.items():
        hub.files[f"datasets/{NAME}/{commit}/{file}"] = content if isinstance(content, bytes) else content.encode()
    hub.branches[f"datasets/{NAME}/main"] = commit


def load(**changes: Any) -> Corpus:
    return load_hub(data_params(task="hub", dataset=PINNED, **changes))


def test_a_dataset_goes_through_download(hub: Hub, tmp_path: Path) -> None:
    train = labeled()
    publish(hub, {
        "data/train-00000-of-00002.parquet": parquet(train.select(range(30)), tmp_path),
        "data/train-00001-of-00002.parquet": parquet(train.select(range(30, 40)), tmp_path),
        "data/dev-00000-of-00001.parquet": parquet(train.select(range(4)), tmp_path),
        "data/test-00000-of-00001.parquet": parquet(labeled(6, seed=1, unlabeled=True), tmp_path),
    })  # fmt: skip
    raw = tmp_path / "raw"
    download(raw, data_params(task="hub", dataset=PINNED, on_leakage="drop"))
    task, source = read_json(raw, "task"), read_json(raw, "source")
    assert (task["labels"], task["metric_for_best_model"]) == (["neg", "pos"], "f1")
    assert (task["predicted_splits"], task["unlabeled_splits"]) == (["validation", "test"], ["test"])
    assert [row["idx"] for row in read_split(raw, "train")] == list(range(4, 40)), "leaked rows are dropped"
    assert [row["label"] for row in read_split(raw, "validation")] == [1, 0, 1, 0]
    assert list(read_split(raw, "test")[0]) == ["text", "idx", "leakage"]
    assert (source["dataset"], source["revision"]) == (NAME, COMMIT)
    assert source["sha256"].keys() == {"train", "validation", "test"}


def test_validation_and_test_are_made_from_train(hub: Hub) -> None:
    publish(hub, {"train.jsonl": jsonl(TEXTS)})
    corpus = load()
    assert [len(corpus.splits[split]) for split in ("train", "validation", "test")] == [32, 4, 4]
    with pytest.raises(UserError, match=rf"{NAME}@\w+ has no validation split.*Add one"):
        load(split={"type": "fixed"})


def test_a_field_inside_objects_can_be_the_text(hub: Hub) -> None:
    lines = [{"review": {"text": text, "by": None}, "label": label} for text, label in TEXTS]
    publish(hub, {"train.jsonl": "".join(json.dumps(line) + "\n" for line in lines)})
    assert list(read_hub(PINNED, None, None).train) == ["review.text", "review.by", "label"]
    splits = load(text_column_names=["review.text"]).splits.values()
    assert {text for rows in splits for text in rows["review.text"]} == {text for text, _ in TEXTS}


def test_images_and_sounds_are_left_out(hub: Hub, tmp_path: Path) -> None:
    media = [{"bytes": b"", "path": None}] * 40
    rows = labeled().add_column("image", media, feature=Image()).add_column("sound", media, feature=Audio())
    [batch] = dataset_batches("rows", rows, ColumnSelection([], keep_rest=True))
    assert batch.columns.keys() == {"text", "label"}
    publish(hub, {"train.parquet": parquet(rows, tmp_path)})
    with pytest.raises(UserError, match=r'no column "image"'):
        load(slice_columns=["image"])


def test_fields_of_csv_files_stay_as_they_are(hub: Hub) -> None:
    """`load_dataset` reads "NA" and "None" as missing, and 007 as 7."""
    texts = [("NA", "007"), ("None", "010"), ("007", "007"), *((text, "010") for text, _ in TEXTS)]
    publish(hub, {"train.csv": csv(texts), "validation.csv": csv([("null", "007"), ("1.0", "010")])})
    corpus = load(split={"type": "fixed"})
    assert corpus.task.labels == ["007", "010"]
    assert [row["text"] for row in examples(corpus, "train")[:3]] == ["NA", "None", "007"]
    assert [row["text"] for row in examples(corpus, "validation")] == ["null", "1.0"]


def test_an_empty_field_of_a_csv_file_means_none_of_the_labels(hub: Hub) -> None:
    publish(hub, {"train.csv": csv(rows(40, ["a|b", ""]))})
    assert {tuple(label) for rows in load().splits.values() for label in rows["label"]} == {(0, 0), (1, 1)}


def test_the_encoding_of_csv_files_is_in_the_readme(hub: Hub) -> None:
    readme = "---\nconfigs:\n- {config_name: a, data_files: train.csv, encoding: latin-1}\n---\n"
    publish(hub, {"README.md": readme, "train.csv": csv([*TEXTS, ("früh", "pos")]).encode("latin-1")})
    assert "früh" in [text for rows in load().splits.values() for text in rows["text"]]


@pytest.mark.parametrize("setting", ["header: null", "column_names: [text, label]"])
def test_csv_files_without_a_header_are_rejected(setting: str, hub: Hub) -> None:
    readme = f"---\nconfigs:\n- {{config_name: a, data_files: train.csv, {setting}}}\n---\n"
    publish(hub, {"README.md": readme, "train.csv": csv(TEXTS)})
    with pytest.raises(UserError, match=rf"^{PINNED}: .*column_names or header.* data\.task=custom"):
        load()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("one,pos,more", r"train\.csv line 42 must have as many fields as the header \(2\), got 3"),
        (",pos", r"^train has rows without a text .* 1 of 41 \(2\.4%\), idx 40"),
    ],
)
def test_a_damaged_csv_file_is_an_error(hub: Hub, row: str, message: str) -> None:
    publish(hub, {"train.csv": csv(TEXTS) + row + "\n"})
    with pytest.raises(UserError, match=message):
        load()


CARD = """---
configs:
- config_name: stars
  data_files:
  - {split: train, path: stars/*.csv}
- config_name: words
  data_files:
  - {split: unsupervised, path: words/more.csv}
  - {split: all, path: words/train.csv}
  - {split: test, path: words/test.csv}
dataset_info:
- config_name: stars
  features:
  - {name: text, dtype: string}
  - name: label
    dtype: {class_label: {names: {"0": bad, "1": good}}}
- config_name: words
  features:
  - {name: text, dtype: string}
  - {name: label, dtype: string}
---
"""


@pytest.fixture
def card(hub: Hub) -> None:
    """Publish a dataset whose README.md names configurations and splits."""
    publish(hub, {
        "README.md": CARD,
        "stars/a.csv": csv(rows(40, [1, 0])),
        "words/train.csv": csv(TEXTS),
        "words/test.csv": csv(rows(5, ["pos", "neg"], 1)),
        "words/more.csv": csv(rows(5, ["pos", "neg"], 2)),
    })  # fmt: skip


@pytest.mark.usefixtures("card")
def test_configurations_and_splits_are_chosen_by_name(hub: Hub) -> None:
    corpus = load(config="words", splits={"train": "all", "test": "test"})
    assert (corpus.task.labels, len(corpus.splits["test"])) == (["neg", "pos"], 5)
    assert corpus.origin["config"] == "words"
    assert load(config="stars").task.labels == ["bad", "good"], "the class names are in README.md"
    assert not any("more.csv" in request for request in hub.requests if "GET" in request and "stars" in request)
    assert list(load_splits(PINNED, "words")) == ["unsupervised", "all", "test"]


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, r"cannot be loaded with data\.config=null \(in init, --config\): .*'stars', 'words'"),
        (
            {"config": "star"},
            r"cannot be loaded with data\.config=\"star\" \(in init, --config\): .*'star' not found.*'stars', 'words'",
        ),
        ({"config": "words"}, r"no split train\. .*data\.splits .*: unsupervised, all, test"),
        (
            {"config": "words", "splits": {"train": "all", "test": "tset"}},
            r'no split "tset"\. .*data\.splits .*: unsupervised, all, test',
        ),
        ({"config": "stars", "label_column_name": "lable"}, r'reviews train has no column "lable"\. .* "label"\?'),
    ],
)
def test_a_wrong_name_is_an_error_that_lists_the_right_ones(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(**changes)


def test_a_row_of_a_split_that_was_made_from_train_is_named_by_its_row_in_train(hub: Hub) -> None:
    publish(hub, {"train.jsonl": jsonl(TEXTS)})
    labeled = load_source_rows(data_params(task="hub", dataset=PINNED)).labeled
    assert labeled["place"].tolist() == [f"train row {idx}" for idx in labeled["idx"]]


def publish_splits(hub: Hub, *splits: str) -> None:
    """Publish a dataset whose README.md names the splits. The first one is the largest."""
    data_files = ", ".join(f"{{split: {split}, path: {split}.csv}}" for split in splits)
    files = {f"{split}.csv": csv(rows(3 if seed else 40, ["pos", "neg"], seed)) for seed, split in enumerate(splits)}
    publish(hub, {"README.md": f"---\nconfigs:\n- {{config_name: a, data_files: [{data_files}]}}\n---\n", **files})


def test_splits_with_other_names_are_ignored_with_a_warning(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    publish_splits(hub, "train", "unsupervised")
    assert sum(map(len, load().splits.values())) == 40
    assert any("ignored: unsupervised. To use them, set data.splits" in message for message in caplog.messages)


def test_two_candidates_for_a_split_are_an_error(hub: Hub) -> None:
    publish_splits(hub, "train", "dev", "valid")
    with pytest.raises(UserError, match=r"several candidates for validation: dev, valid\. .*data\.splits"):
        load()
    assert len(load(splits={"train": "train", "validation": "dev"}).splits["validation"]) == 3


INVALID: dict[str, tuple[dict[str, str], str]] = {
    "a list as a text": (
        {"train.jsonl": '{"text": ["a"], "label": "b"}\n' * 20},
        r"someone/reviews train row 0 has \['a'\] in column \"text\", which is not text",
    ),
    "a script": (
        {"reviews.py": "raise SystemExit('this code must not run')", "train.csv": csv(TEXTS)},
        rf"{PINNED} cannot be loaded .*: .*scripts are no longer supported, but found reviews\.py",
    ),
    "pictures": ({"train/a.png": "picture"}, r"is read as imagefolder\. Only csv, json, parquet, arrow files"),
    "a file elsewhere": (
        {"README.md": "---\nconfigs:\n- {config_name: a, data_files: 'hf://datasets/someone/else/train.csv'}\n---\n"},
        r"cannot be loaded .*: Data files don't belong to someone/reviews",
    ),
    "a file of another commit": (
        {
            "README.md": f"---\nconfigs:\n- {{config_name: a, data_files: 'hf://datasets/{NAME}@{NEXT}/train.csv'}}\n---\n"
        },
        rf"^{PINNED} refers to hf://datasets/{NAME}@{NEXT}/train\.csv, which is not part of the dataset",
    ),
    "not JSON": ({"train.jsonl": '{"text": "a"' * 20}, rf"{PINNED} cannot be loaded: .*JSON"),
}


@pytest.mark.parametrize("case", INVALID)
def test_a_dataset_that_cannot_be_used_is_an_error(case: str, hub: Hub, tmp_path: Path) -> None:
    files, message = INVALID[case]
    publish(hub, files)
    for name in ("someone/else", NAME):
        hub.files[f"datasets/{name}/{NEXT}/train.csv"] = csv(TEXTS).encode()
    hub.branches["datasets/someone/else/main"] = NEXT
    with pytest.raises(UserError, match=message):
        download(tmp_path / "raw", data_params(task="hub", dataset=PINNED))
    assert not (tmp_path / "raw").exists()


def test_another_commit_in_the_cache_is_never_used(hub: Hub, tmp_path: Path) -> None:
    """If a dataset has no data files or the Hub fails, `load_dataset` uses the commit that it has loaded before."""
    publish(hub, {"train.parquet": parquet(labeled(), tmp_path)})
    load()
    publish(hub, {".gitattributes": "* text"}, NEXT)
    with pytest.raises(UserError, match=rf"{NAME}@{NEXT}: the Hub did not send the files of this commit"):
        load_hub(data_params(task="hub", dataset=f"{NAME}@{NEXT}"))


def test_a_directory_with_the_name_of_the_dataset_is_never_used(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(hub, {"train.jsonl": jsonl(TEXTS)})
    monkeypatch.chdir(tmp_path)
    Path(NAME).mkdir(parents=True)
    Path(NAME, "train.jsonl").write_text(jsonl(rows(40, ["other", "words"])))
    with pytest.raises(UserError, match=f"If {NAME} is also a directory here"):
        load()


def test_a_file_that_was_damaged_on_the_way_is_an_error(hub: Hub, tmp_path: Path) -> None:
    publish(hub, {"train.parquet": parquet(labeled(), tmp_path)})
    hub.corrupt = True
    with pytest.raises(UserError, match="is not the file that the Hub published"):
        load()


def test_a_private_dataset_needs_a_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(hub, {"train.jsonl": jsonl(TEXTS)})
    hub.token = "hf_secret"
    with pytest.raises(UserError, match=r"the Hub answered 401 .*hf auth login"):
        load()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert load().task.labels == ["neg", "pos"]


def test_without_a_network_the_cache_is_not_used(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(hub, {"train.jsonl": jsonl(TEXTS)})
    load()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=rf"^{NAME} at {COMMIT}: .*offline mode.*reach the Hub"):
        load()


def test_pin_prints_the_commit_of_a_dataset(
    hub: Hub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(hub, {"train.jsonl": jsonl(TEXTS)})
    publish(hub, {"train.jsonl": jsonl(TEXTS)}, NEXT)
    hub.branches[f"datasets/{NAME}/first"] = COMMIT
    assert pin_dataset(f"{NAME}@first") == PINNED
    monkeypatch.setattr("sys.argv", ["pin", "--dataset", NAME])
    pin_command()
    assert capsys.readouterr().out == f"{NAME}@{NEXT}\n"
    with pytest.raises(UserError, match="someone/nothing: the Hub answered 401"):
        pin_dataset("someone/nothing")
