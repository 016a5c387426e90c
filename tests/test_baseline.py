"""The stage baseline: a linear model on TF-IDF features."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import replace_columns
from report_inputs import TASKS

from pipeline.baseline import _read_train, baseline
from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.evaluate import evaluate
from pipeline.evaluation.predictions import load_predictions

WORDS = ("harbor", "meadow", "copper")


def write_raw(directory: Path, task: Task, train: Sequence[Any], validation: Sequence[Any]) -> Path:
    """Write data/raw with the labels of the splits. The text of a row consists of the words of its labels."""
    directory.mkdir()
    task.write(directory)
    (directory / "source.json").write_text('{"sha256": {}}')
    for split, labels in (("train", train), ("validation", validation)):
        texts = [_text(task, label) for label in labels]
        columns = {"idx": np.arange(len(labels), dtype=np.int32), "label": list(labels), task.text_columns[0]: texts}
        pq.write_table(pa.table(columns), directory / f"{split}.parquet")
    return directory


def _text(task: Task, label: Any) -> str:
    if task.problem_type == "multi_label_classification":
        return "the " + " ".join(word for word, present in zip(task.labels, label, strict=True) if present)
    return f"a {WORDS[label]}"


def make_task(**changes: Any) -> Task:
    task = replace(TASKS["classes"], labels=list(WORDS), predicted_splits=["validation"], slice_columns=[])
    return replace(task, **changes)


def test_a_class_that_train_does_not_have_is_never_predicted(tmp_path: Path) -> None:
    task = make_task()
    raw = write_raw(tmp_path / "raw", task, [0, 2] * 10, [0, 1, 2])
    baseline(raw, tmp_path / "baseline")
    predictions = load_predictions(tmp_path / "baseline", "validation", task)
    assert predictions.predicted.tolist()[::2] == [0, 2]
    assert predictions.probability is not None
    assert predictions.probability.shape == (3, 3)
    assert predictions.probability[:, 1].max() < 0.001


def test_a_label_that_every_training_example_has_is_predicted(tmp_path: Path) -> None:
    task = make_task(problem_type="multi_label_classification")
    raw = write_raw(tmp_path / "raw", task, [[1, 1, 0], [1, 0, 1]] * 10, [[1, 1, 0], [1, 0, 1]])
    baseline(raw, tmp_path / "baseline")
    predictions = load_predictions(tmp_path / "baseline", "validation", task)
    assert predictions.predicted.tolist() == [[1, 1, 0], [1, 0, 1]]
    assert predictions.probability is not None
    assert predictions.probability[:, 0].min() > 0.999


@pytest.mark.parametrize("train", [[[0], [1]], [[1], [1]]])
def test_a_single_label_is_predicted(train: list[list[int]], tmp_path: Path) -> None:
    task = make_task(problem_type="multi_label_classification", labels=["red"])
    raw = write_raw(tmp_path / "raw", task, train * 10, train)
    baseline(raw, tmp_path / "baseline")
    assert load_predictions(tmp_path / "baseline", "validation", task).predicted.tolist() == train


def test_a_label_that_no_training_example_has_is_improbable(tmp_path: Path) -> None:
    task = make_task(problem_type="multi_label_classification")
    raw = write_raw(tmp_path / "raw", task, [[1, 0, 0], [0, 0, 1]] * 10, [[1, 0, 0], [0, 0, 1]])
    baseline(raw, tmp_path / "baseline")
    predictions = load_predictions(tmp_path / "baseline", "validation", task)
    assert predictions.probability is not None
    assert predictions.probability[:, 1].max() < 0.001


def test_only_the_start_of_a_long_text_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = make_task()
    raw = write_raw(tmp_path / "raw", task, [0, 1, 2] * 3, [0, 1, 2])
    baseline(raw, tmp_path / "short")
    assert not caplog.messages
    for file in raw.glob("*.parquet"):
        texts = pq.read_table(file)["text"].to_pylist()
        replace_columns(file, text=[f"{text:2000} {WORDS[0] * 9}" for text in texts])
    baseline(raw, tmp_path / "long")
    assert "2,000 characters" in caplog.text
    logits = [load_predictions(tmp_path / name, "validation", task).logits for name in ("short", "long")]
    assert np.array_equal(*logits)


def test_a_sample_of_train_has_each_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.baseline._MAX_ROWS", 10)
    task = make_task()
    raw = write_raw(tmp_path / "raw", task, [0] * 300 + [1, 2], [0, 1])
    assert _read_train(raw, task)["label"].unique().tolist() == [0, 1, 2]


def test_texts_without_words_are_accepted(tmp_path: Path) -> None:
    task = make_task()
    raw = write_raw(tmp_path / "raw", task, [0, 1, 2] * 3, [0, 1, 2])
    for file in raw.glob("*.parquet"):
        labels = pq.read_table(file)["label"].to_pylist()
        replace_columns(file, text=["\N{SNOWMAN}\N{UMBRELLA}\N{BLACK SCISSORS}"[label] for label in labels])
    baseline(raw, tmp_path / "baseline")
    assert load_predictions(tmp_path / "baseline", "validation", task).is_correct.all()


def test_the_same_rows_give_the_same_bytes_and_evaluate_rejects_a_baseline_with_fewer_rows(
    raw: Path, tmp_path: Path
) -> None:
    for name, rows in (("first", None), ("second", None), ("sample", 7)):
        baseline(raw, tmp_path / name, rows)
    for file in (tmp_path / "first").iterdir():
        assert file.read_bytes() == (tmp_path / "second" / file.name).read_bytes()
    every, sample = (pq.read_table(tmp_path / name / "test.parquet") for name in ("first", "sample"))
    assert sample == every.slice(0, 7)
    with pytest.raises(UserError, match=r'sample/validation\.parquet .*"dvc repro"'):
        evaluate(raw, tmp_path / "first", tmp_path / "sample", tmp_path / "metrics")
