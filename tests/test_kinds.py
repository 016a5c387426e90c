"""Each type of task passes through the stages with both engines, and a resumed run gives the same bytes."""

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from conftest import TinyMaker, engine_outputs, predict_splits, replace_columns, tokenize_params, train_model
from kinds import SIZES, TASKS, download_task
from sklearn.utils.class_weight import compute_class_weight
from test_resume import killed_at
from torch.nn import functional

from pipeline.baseline import FrozenEncoder, baseline
from pipeline.core.messages import UserError
from pipeline.core.task import read_task
from pipeline.evaluate import evaluate
from pipeline.modeling.device import Device
from pipeline.tokenize_data import tokenize
from pipeline.training.losses import SummedLoss, weigh_classes

TOKENIZE = tokenize_params(64)


@pytest.fixture(scope="module", params=list(TASKS))
def task_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def downloaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Run download once for each type of task."""
    return functools.cache(lambda task_type: download_task(task_type, tmp_path_factory.mktemp(task_type)))


def test_download_infers_the_type_of_the_task(task_type: str, downloaded: Callable[[str], Path]) -> None:
    assert read_task(downloaded(task_type)) == TASKS[task_type]


@pytest.fixture(scope="module")
def data(
    downloaded: Callable[[str], Path], tiny: TinyMaker, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    @functools.cache
    def make(task_type: str) -> Path:
        out = tmp_path_factory.mktemp(task_type) / "tokenized"
        tokenize(downloaded(task_type), tiny(), out, TOKENIZE, 1)
        return out

    return make


@pytest.fixture
def run(tiny: TinyMaker, data: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Train on a type of task, and return the output directory."""

    def run(task_type: str, name: str, **changes: Any) -> Path:
        settings = {"max_train_samples": None, "batch_size": 8, **changes}
        return train_model(data(task_type), tiny(), tmp_path / name, tmp_path / "c", **settings)

    return run


def test_each_type_of_task_passes_through_the_stages_and_beats_its_baseline(
    task_type: str, run: Callable[..., Path], downloaded: Callable[[str], Path], data: Callable[[str], Path],
    tiny: TinyMaker, tmp_path: Path,
) -> None:  # fmt: skip
    """The model gives the same answers in a transformers pipeline as in the predict stage."""
    from transformers import pipeline

    epochs = 8 if task_type == "multi_label" else 4
    task, out = TASKS[task_type], run(task_type, "run", epochs=epochs, lr=3e-3, warmup_ratio=0.1)
    predictions = predict_splits(downloaded(task_type), data(task_type), out)
    encoder = FrozenEncoder(tiny(), 96, 64, Device("cpu", "fp32"))
    baseline(downloaded(task_type), tmp_path / "baseline", encoder=encoder)
    evaluate(downloaded(task_type), predictions, tmp_path / "baseline", out / "metrics")
    scores = json.loads((out / "metrics" / "evaluation.json").read_text())
    assert list(scores) == sorted(task.scored_splits)
    metric = task.metrics[0]
    for model in (metric, f"linear_{metric}", f"frozen_{metric}"):
        assert scores["validation"][model] > scores["validation"][f"{task.constant_baseline}_{metric}"] + 0.1
    rows = pq.read_table(predictions / "test.parquet").to_pylist()
    assert len(rows) == SIZES["test"]
    assert ("label" in rows[0]) == ("test" in task.scored_splits), "a split without labels gets no label column"
    logits = [name for name in rows[0] if name.startswith("logit_")]
    assert len(logits) == task.outputs
    classify: Any = pipeline("text-classification", model=str(out / "classifier"), top_k=None)
    row = pq.read_table(downloaded(task_type) / "test.parquet").to_pylist()[0]
    text = dict(zip(("text", "text_pair"), map(row.get, task.text_columns), strict=False))
    prediction = rows[0]["prediction"]
    [answers] = classify([text])
    scores_by_label = {answer["label"]: answer["score"] for answer in answers}
    if task_type == "regression":
        assert list(scores_by_label.values()) == [pytest.approx(prediction, abs=1e-4)]
    elif task_type == "multi_label":
        assert [int(scores_by_label[label] > 0.5) for label in task.labels] == prediction
    else:
        assert max(scores_by_label, key=scores_by_label.__getitem__) == task.labels[prediction]


def test_both_engines_give_the_same_bytes(task_type: str, run: Callable[..., Path]) -> None:
    settings = {
        "epochs": 2, "max_train_samples": 39, "gradient_accumulation_steps": 2, "logging_steps": 1,
        "class_weights": None if task_type == "regression" else "balanced",
    }  # fmt: skip
    trainer_outputs, loop_outputs = (
        engine_outputs(run(task_type, engine, engine=engine, **settings)) for engine in ("trainer", "loop")
    )
    assert trainer_outputs == loop_outputs


def test_a_killed_regression_run_resumes_to_the_same_bytes(run: Callable[..., Path], tmp_path: Path) -> None:
    """Regression labels are standardized during training."""
    settings = {"engine": "trainer", "epochs": 2, "max_train_samples": 40, "save_steps": 2, "logging_steps": 3}
    expected = engine_outputs(run("regression", "expected", **settings))
    shutil.rmtree(tmp_path / "c")
    with killed_at(8):
        run("regression", "resumed", **settings)
    assert engine_outputs(run("regression", "resumed", **settings)) == expected


def test_the_loss_does_not_depend_on_how_a_batch_is_split(task_type: str) -> None:
    task, random = TASKS[task_type], torch.Generator().manual_seed(0)
    logits = torch.randn(10, task.outputs, generator=random)
    labels = {
        "classes": torch.randint(4, (10,), generator=random),
        "multi_label": torch.randint(2, (10, 3), generator=random).float(),
        "regression": torch.randn(10, generator=random),
    }[task_type]
    weights = None if task_type == "regression" else torch.tensor([0.5, 2.0, 1.0, 3.0][: task.outputs])
    loss = SummedLoss(task.problem_type, weights)
    whole = loss(logits, labels)
    torch.testing.assert_close(loss(logits[:3], labels[:3]) + loss(logits[3:], labels[3:]), whole)
    plain = SummedLoss(task.problem_type, None)(logits, labels)
    assert weights is None or plain != whole
    torch_losses: dict[str, Callable[..., torch.Tensor]] = {
        "classes": functional.cross_entropy,
        "multi_label": functional.binary_cross_entropy_with_logits,
        "regression": lambda logits, labels: functional.mse_loss(logits[:, 0], labels),
    }
    torch.testing.assert_close(plain / labels.numel(), torch_losses[task_type](logits, labels))


def test_balanced_weights_match_scikit_learn() -> None:
    labels = np.array([0] * 10 + [1] * 5 + [2] * 2 + [3])
    weights = weigh_classes("balanced", TASKS["classes"], labels)
    expected = compute_class_weight("balanced", classes=np.arange(4), y=labels)
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-6)
    multi_label_weights = weigh_classes("balanced", TASKS["multi_label"], np.array([[1, 1, 0], [1, 0, 0], [1, 0, 0]]))
    assert multi_label_weights.tolist() == [1.0, 2.0, 1.0], (
        "rows without the label / rows with it, or 1 if all rows or no rows have it"
    )
    named_weights = weigh_classes({"Denver": 3}, TASKS["classes"], labels)
    assert named_weights.tolist() == [1.0, 1.0, 3.0, 1.0]


def test_invalid_weights_and_metrics_are_rejected_in_one_line(run: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match=r'class_weights must be one of Boston, Chicago.* got "Paris"'):
        run("classes", "run", class_weights={"Paris": 2.0})
    with pytest.raises(UserError, match=r"train\.class_weights must be null for a regression"):
        run("regression", "run", class_weights="balanced")
    with pytest.raises(UserError, match=r'best_model must be one of loss, accuracy, .*got "pearson"'):
        run("multi_label", "run", metric_for_best_model="pearson")


@pytest.mark.parametrize(
    ("task", "message"), [("classes", r"less than 22 .* got 22\."), ("regression", "less than 10")]
)
def test_a_stride_that_does_not_fit_is_rejected(
    task: str, message: str, downloaded: Callable[[str], Path], tiny: TinyMaker, tmp_path: Path
) -> None:
    params = tokenize_params(24, stride=22)
    with pytest.raises(UserError, match=rf"tokenize\.stride must be .*{message}"):
        tokenize(downloaded(task), tiny(), tmp_path / "out", params, 1)


def test_a_label_equal_to_the_marker_for_missing_labels_is_rejected(
    downloaded: Callable[[str], Path], tiny: TinyMaker, tmp_path: Path
) -> None:
    raw = shutil.copytree(downloaded("regression"), tmp_path / "raw")
    first, _, *rest = pq.read_table(raw / "validation.parquet")["label"].to_pylist()
    replace_columns(raw / "validation.parquet", label=[first, -100, *rest])
    with pytest.raises(UserError, match=r"^validation has the label -100, .*Shift the"):
        tokenize(raw, tiny(), tmp_path / "out", TOKENIZE, 1)
