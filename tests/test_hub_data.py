"""Datasets of the Hub, from a local server with the real client."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import data_params
from custom_files import csv, examples, jsonl, read_json, read_split, rows
from datasets import ClassLabel, Dataset, Features, Value
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.download import download
from pipeline.sources.corpus import Corpus
from pipeline.sources.demo import DEMO_FILE
from pipeline.sources.hub_data import load_hub

COMMIT, NEXT = "0123456789abcdef0123456789abcdef01234567", "76543210fedcba9876543210fedcba9876543210"
NAME = "someone/reviews"
PINNED = f"{NAME}@{COMMIT}"
TEXTS = rows(40, ["pos", "neg"])


def parquet(tmp_path: Path, count: int, labels: list[int], seed: int = 0) -> bytes:
    """Return distinct texts with class numbers, as `push_to_hub` writes them."""
    texts, numbers = zip(*rows(count, labels, seed), strict=True)
    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"]), "topic": Value("int64")})
    dataset = Dataset.from_dict({"text": texts, "label": numbers, "topic": [-1] * count}, features=features)
    dataset.to_parquet(tmp_path / "rows.parquet")
    return (tmp_path / "rows.parquet").read_bytes()


def readme(config: str, features: str = "") -> str:
    info = f"{{config_name: a, features: [{features}]}}"
    return f"---\nconfigs: [{{config_name: a, {config}}}]\ndataset_info: {info}\n---\n"


def publish(hub: Hub, files: Mapping[str, str | bytes], commit: str = COMMIT) -> None:
    for file, content in files.items():
        hub.files[f"datasets/{NAME}/{commit}/{file}"] = content if isinstance(content, bytes) else content.encode()
    hub.branches[f"datasets/{NAME}/main"] = commit


def load(**changes: Any) -> Corpus:
    return load_hub(data_params(**{"task": "hub", "dataset": PINNED, **changes}))


def test_a_dataset_goes_through_download(hub: Hub, tmp_path: Path) -> None:
    publish(hub, {
        "data/train-00000-of-00002.parquet": parquet(tmp_path, 30, [1, 0]),
        "data/train-00001-of-00002.parquet": parquet(tmp_path, 10, [1, 0], seed=1),
        "data/dev-00000-of-00001.parquet": parquet(tmp_path, 4, [1, 0], seed=2),
        "data/test-00000-of-00001.parquet": parquet(tmp_path, 6, [-1], seed=3),
    })  # fmt: skip
    raw = tmp_path / "raw"
    download(raw, data_params(task="hub", dataset=PINNED, slice_columns=["topic"]))
    task, source = read_json(raw, "task"), read_json(raw, "source")
    assert (task["labels"], task["unlabeled_splits"]) == (["neg", "pos"], ["test"])
    assert [row["idx"] for row in read_split(raw, "train")] == list(range(40))
    assert [row["label"] for row in read_split(raw, "validation")] == [1, 0, 1, 0]
    assert {row["topic"] for row in read_split(raw, "test")} == {"-1"}, "only a class number of -1 is not a value"
    assert (source["dataset"], source["revision"]) == (NAME, COMMIT)
    assert source["sha256"].keys() == {"train", "validation", "test"}


def test_csv_files_are_read_like_those_of_the_user(hub: Hub) -> None:
    """`load_dataset` reads "NA" and "None" as missing and 007 as 7, and it fills rows with too few fields."""
    settings = readme('data_files: ./rows.csv, encoding: latin-1, sep: "\\t"')
    content = csv([("NA", "007"), ("None", "010"), ("früh", "007"), *((text, "010") for text, _ in TEXTS)])
    content = content.replace(",", "\t")
    publish(hub, {"README.md": settings, "rows.csv": content.encode("latin-1")})
    corpus = load()
    assert corpus.task.labels == ["007", "010"]
    assert {"NA", "None", "früh"} < {row["text"] for split in corpus.splits for row in examples(corpus, split)}
    publish(hub, {"README.md": settings, "rows.csv": f"{content}one\n".encode("latin-1")}, NEXT)
    with pytest.raises(UserError, match=r"^someone/reviews/rows\.csv line 45: .*1 fields"):
        load(dataset=f"{NAME}@{NEXT}")


CLASS_LABEL = '{class_label: {names: {"0": bad, "1": good}}}'


@pytest.mark.parametrize(
    ("label_type", "write", "good", "bad", "unknown"),
    [
        (f"dtype: {CLASS_LABEL}", csv, "1", "0", "-1"),
        (f"dtype: {CLASS_LABEL}", csv, "good", "bad", ""),
        (f"dtype: {CLASS_LABEL}", jsonl, 1, 0, -1),
        (f"list: {CLASS_LABEL}", jsonl, [1], [0], [-1]),
    ],
)
def test_readme_names_the_classes(label_type: str, write: Any, good: Any, bad: Any, unknown: Any, hub: Hub) -> None:
    features = f"{{name: text, dtype: string}}, {{name: label, {label_type}}}"
    files = {"train": [*rows(40, [good, bad]), ("dropped", unknown)], "test": [("-1", unknown), ("0", unknown)]}
    suffix = "csv" if write is csv else "jsonl"
    data_files = ", ".join(f"{{split: {split}, path: {split}.{suffix}}}" for split in files)
    publish(hub, {f"{split}.{suffix}": write(table) for split, table in files.items()})
    publish(hub, {"README.md": readme(f"data_files: [{data_files}]", features)})
    corpus = load(on_missing="drop")
    assert (corpus.task.labels, corpus.task.unlabeled_splits) == (["bad", "good"], ["test"])
    assert len(corpus.splits["train"]) + len(corpus.splits["validation"]) == 40
    assert examples(corpus, "train")[0]["label"] in (1, [0, 1])
    assert [row["text"] for row in examples(corpus, "test")] == ["-1", "0"]


CARD = """---
configs:
- {config_name: stars, data_files: [{split: train, path: stars/*.csv}]}
- {config_name: words, data_files: [{split: all, path: words/train.csv}, {split: test, path: words/test.csv}]}
- config_name: folds
  data_files: [{split: train, path: words/train.csv}, {split: dev, path: a.csv}, {split: valid, path: words/test.csv}]
---
"""
STARS = {"features": {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}}
CONFIGS = {
    "README.md": CARD,
    "dataset_infos.json": json.dumps({"stars": STARS, "words": {}}),  # Old versions of `datasets` wrote such a file.
    "stars/a.csv": csv(rows(20, [1, 0])),
    "stars/b.csv": csv(rows(20, [1, 0], 1)),
    "words/train.csv": csv(TEXTS),
    "words/test.csv": csv(rows(5, ["pos", "neg"], 1)),
    "a.csv": csv(rows(5, ["pos", "neg"], 2)),
}


def test_configurations_and_splits_are_chosen_by_name(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    publish(hub, CONFIGS)
    corpus = load(config="words", splits={"train": "all"})
    assert (corpus.task.labels, sum(map(len, corpus.splits.values()))) == (["neg", "pos"], 40)
    assert corpus.origin["config"] == "words"
    assert "ignored: test" in caplog.text
    assert not [request for request in hub.requests if "stars" in request], "files of another configuration"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, r"data\.config=null .*'stars', 'words'"),
        ({"config": "words"}, r'no split "train"\. .*data\.splits .*: all, test'),
        ({"config": "folds"}, r"several candidates for validation: dev, valid\. .*data\.splits"),
        ({"config": "stars", "label_column_name": "lable"}, r'a\.csv has no column "lable"\. .* "label"\?'),
    ],
)
def test_a_wrong_name_is_an_error_that_lists_the_right_ones(changes: dict[str, Any], message: str, hub: Hub) -> None:
    publish(hub, CONFIGS)
    with pytest.raises(UserError, match=message):
        load(**changes)


def test_a_cached_commit_needs_no_network(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(hub, CONFIGS)
    online = load(config="stars")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    corpus = load(config="stars")
    assert (corpus.task.labels, corpus.origin) == (["bad", "good"], online.origin)
    next(tmp_path.glob("hub/**/stars/b.csv")).unlink()
    for missing, changes in {"stars/b.csv": {}, f"{NAME} at {NEXT:.12}": {"dataset": f"{NAME}@{NEXT}"}}.items():
        with pytest.raises(UserError, match=f"{missing}.*HF_HUB_OFFLINE"):
            load(config="stars", **changes)


INVALID = {
    "a script": ({"reviews.py": "raise SystemExit", "train.csv": csv(TEXTS)}, r"scripts are no longer .*reviews\.py"),
    "no data": ({".gitattributes": "* text"}, rf" {NAME} doesn't contain any data files"),
    "another dataset": ({"README.md": readme("data_files: hf://datasets/someone/else/train.csv")}, "else/train.csv"),
    "another commit": ({"README.md": readme(f"data_files: hf://datasets/{NAME}@{NEXT}/train.csv")}, NEXT),
    "a local file": ({"README.md": readme(f"data_files: '{DEMO_FILE}'")}, r"demo\.csv, which is not part"),
}


@pytest.mark.parametrize("case", INVALID)
def test_a_dataset_that_cannot_be_used_is_an_error(case: str, hub: Hub) -> None:
    files, message = INVALID[case]
    publish(hub, files)
    for name in ("someone/else", NAME):
        hub.files[f"datasets/{name}/{NEXT}/train.csv"] = csv(TEXTS).encode()
    hub.branches["datasets/someone/else/main"] = NEXT
    with pytest.raises(UserError, match=rf"^{PINNED}.*{message}"):
        load()
