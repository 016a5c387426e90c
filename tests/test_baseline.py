"""The stage baseline: a linear model on TF-IDF features, and one on the base model without fine-tuning."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import TinyMaker, contents, params_file, replace_columns
from transformers import AutoModel

from pipeline.baseline import FrozenEncoder, baseline, main
from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.evaluate import evaluate
from pipeline.evaluation.predictions import Predictions, load_predictions
from pipeline.modeling.device import Device
from pipeline.modeling.tokenization import load_tokenizer
from pipeline.params import load_params
from pipeline.sources.glue import glue_task

WORDS = ["harbor", "meadow", "copper"]
CLASSES = replace(glue_task("cola"), labels=WORDS, metrics=["accuracy"], predicted_splits=["validation"])
CPU = Device("cpu", "fp32")
LOGITS = ["logit_0", "logit_1"]  # In batches with other padding, the last digits differ.
SEVERAL = replace(CLASSES, problem_type="multi_label_classification")

Run = Callable[..., Predictions]


def write_raw(directory: Path, task: Task, train: Sequence[Any], validation: Sequence[Any]) -> None:
    """Write data/raw with the labels of the splits. The text of a row consists of the words of its labels."""
    directory.mkdir()
    task.write(directory)
    (directory / "source.json").write_text('{"sha256": {}}')
    for split, labels in (("train", train), ("validation", validation)):
        words = [np.array(task.labels)[np.flatnonzero(label) if np.ndim(label) else [label]] for label in labels]
        texts = [" ".join(["the", *names]) for names in words]
        columns = {"idx": np.arange(len(labels), dtype=np.int32), "label": list(labels), task.text_columns[0]: texts}
        pq.write_table(pa.table(columns), directory / f"{split}.parquet")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the stage, and return its predictions for validation."""

    def run(task: Task, train: Sequence[Any], validation: Sequence[Any], change: Callable[[str], str] = str) -> Any:
        raw, out = (tmp_path / f"{name}{len(list(tmp_path.iterdir()))}" for name in ("raw", "baseline"))
        write_raw(raw, task, train, validation)
        for file in raw.glob("*.parquet"):
            column = task.text_columns[0]
            replace_columns(file, **{column: list(map(change, pq.read_table(file)[column].to_pylist()))})
        baseline(raw, out)
        return load_predictions(out / "linear", "validation", task)

    return run


def test_a_class_that_train_does_not_have_is_never_predicted(run: Run) -> None:
    predictions = run(CLASSES, [0, 2] * 10, [0, 1, 2])
    assert predictions.predicted.tolist()[::2] == [0, 2]
    assert predictions.probability is not None and predictions.probability.shape == (3, 3)
    assert predictions.probability[:, 1].max() < 0.001


@pytest.mark.parametrize(
    ("labels", "train"),
    [
        (WORDS, [[1, 1, 0], [1, 0, 1]]),  # Every row has the first label.
        (WORDS, [[1, 0, 0], [0, 0, 1]]),  # No row has the second label.
        (["red"], [[0], [1]]),
        (["red"], [[1], [1]]),
    ],
)
def test_labels_that_all_or_no_rows_of_train_have_are_predicted(
    labels: list[str], train: list[list[int]], run: Run
) -> None:
    predictions = run(replace(SEVERAL, labels=labels), train * 10, train)
    assert predictions.predicted.tolist() == train
    is_constant = np.ptp(train, axis=0) == 0
    assert predictions.probability is not None
    assert np.abs(predictions.probability - train)[:, is_constant].max(initial=0) < 0.001


def test_only_the_start_of_a_long_text_is_read(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    short = run(CLASSES, [0, 1, 2] * 3, [0, 1, 2])
    assert not caplog.messages
    long = run(CLASSES, [0, 1, 2] * 3, [0, 1, 2], lambda text: f"{text:2000} {WORDS[0] * 9}")
    assert "2,000 characters" in caplog.text
    assert np.array_equal(long.logits, short.logits)
    assert long.rows["sentence"].str.len().min() > 2000, "the predictions come with the whole texts"


def test_a_sample_of_train_has_each_class(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.baseline._MAX_ROWS", 10)
    predictions = run(CLASSES, [0] * 300 + [1, 2], [0, 1])
    assert predictions.probability is not None
    assert predictions.probability.min() > 0.001, "a class that the model has not seen would be improbable"


def test_texts_without_words_are_accepted(run: Run) -> None:
    symbols = str.maketrans(dict(zip("hmc", "\N{SNOWMAN}\N{UMBRELLA}\N{BLACK SCISSORS}", strict=True)))
    predictions = run(CLASSES, [0, 1, 2] * 3, [0, 1, 2], lambda text: text.split()[1].translate(symbols)[:1])
    assert predictions.is_correct.all()


def test_the_same_rows_give_the_same_bytes_and_evaluate_rejects_a_baseline_with_fewer_rows(
    raw: Path, tiny: TinyMaker, tmp_path: Path
) -> None:
    for name, rows in (("first", None), ("second", None), ("sample", 7)):
        baseline(raw, tmp_path / name, rows, FrozenEncoder(tiny(), 96, 32, CPU))
    assert contents(tmp_path / "first") == contents(tmp_path / "second")
    for model in ("linear", "frozen"):
        every, sample = (pq.read_table(tmp_path / name / model / "test.parquet") for name in ("first", "sample"))
        assert sample.drop_columns(LOGITS) == every.slice(0, 7).drop_columns(LOGITS)
    with pytest.raises(UserError, match=r'sample .*validation .*"dvc repro"'):
        evaluate(raw, tmp_path / "first" / "linear", tmp_path / "sample", tmp_path / "metrics")


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "bart"])
def test_the_features_of_the_frozen_model_are_means_over_the_tokens(model_type: str, tiny: TinyMaker) -> None:
    texts = ["Apple surpassed the airport", "", "a long text " * 9, "a long text " * 90]
    model, tokenizer = AutoModel.from_pretrained(tiny(model_type)), load_tokenizer(tiny(model_type))
    inputs = [tokenizer(text or "\n", return_tensors="pt", truncation=True, max_length=96) for text in texts]
    model = model.get_encoder() if model_type == "bart" else model
    expected = [model.eval()(**part).last_hidden_state[0].mean(0).detach().numpy() for part in inputs]
    assert FrozenEncoder(tiny(model_type), 96, 3, CPU).encode(texts) == pytest.approx(np.array(expected), abs=1e-5)


def test_the_frozen_model_can_be_switched_off(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/raw").symlink_to(raw)
    main(load_params(params_file(tmp_path, {"baseline.frozen": "false"})))
    assert [path.name for path in Path("data/baseline").iterdir()] == ["linear"]
