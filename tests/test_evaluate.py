"""Scores: one function, which agrees with scikit-learn, behind the `evaluate` library, Trainer and the stage."""

import csv
import json
import math
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from sklearn import metrics as sklearn

from pipeline.core.details import parse_details
from pipeline.core.messages import UserError
from pipeline.core.paths import PROVENANCE
from pipeline.evaluate import evaluate
from pipeline.evaluation.calibration import best_threshold, if_calibrated
from pipeline.evaluation.metrics import METRICS, loss, scores, task_metric
from pipeline.evaluation.signature import joined
from pipeline.evaluation.uncertainty import randomization_test, score_intervals, turned
from pipeline.sources.glue import task_of

MRPC = ("accuracy", "f1")


def random_case(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and logits rounded to tenths, for ties."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, n), np.round(rng.normal(size=(n, 2)), 1)


def probability(logits: np.ndarray) -> np.ndarray:
    return np.round(1 / (1 + np.exp(logits[:, 0] - logits[:, 1])), 6)  # as the stage rounds them


@pytest.mark.parametrize("seed", range(5))
def test_scores_and_loss_match_scikit_learn(seed: int) -> None:
    labels, logits = random_case(seed)
    predictions = logits.argmax(-1)
    found = scores(MRPC, labels, predictions)
    assert found["accuracy"] == pytest.approx(sklearn.accuracy_score(labels, predictions), rel=1e-12)
    assert found["f1"] == pytest.approx(sklearn.f1_score(labels, predictions), rel=1e-12)
    assert loss("single_label_classification", logits, labels) == pytest.approx(
        sklearn.log_loss(labels, probability(logits)), abs=1e-6
    )


def answers(seed: int, n: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions, 7 of 10 right."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    return labels, np.where(rng.random(n) < 0.7, labels, rng.integers(0, classes, n))


@pytest.mark.parametrize("classes", [2, 3, 40, 900])
def test_scores_over_classes_match_scikit_learn(classes: int) -> None:
    labels, predictions = answers(classes, 700, classes)
    found = scores(("f1_macro", "matthews_correlation"), labels, predictions)
    assert found["f1_macro"] == pytest.approx(sklearn.f1_score(labels, predictions, average="macro"), rel=1e-12)
    assert found["matthews_correlation"] == pytest.approx(sklearn.matthews_corrcoef(labels, predictions), rel=1e-12)


def test_scores_over_several_labels_match_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    labels, predictions = (rng.random((2, 300, 40)) < 0.3).astype(int)
    found = scores(("f1_macro", "f1_micro", "accuracy"), labels, predictions)
    for average in ("macro", "micro"):
        expected = sklearn.f1_score(labels, predictions, average=average)
        assert found[f"f1_{average}"] == pytest.approx(expected, rel=1e-12)
    assert found["accuracy"] == sklearn.accuracy_score(labels, predictions)


@pytest.mark.parametrize("name", ["f1_macro", "matthews_correlation"])
def test_the_score_without_an_example_is_that_of_all_others(name: str) -> None:
    labels, predictions = answers(0, 2500, 40)
    found = METRICS[name].left_out(labels, predictions)
    assert len(found) == 2500
    for example in (0, 1, *range(1050, 1150), 2499):  # the largest computed block of rows ends between 1,050 and 1,150
        expected = METRICS[name].score(np.delete(labels, example), np.delete(predictions, example))
        assert found[example] == pytest.approx(expected, abs=1e-14)


ROWS, CLASSES = 10_000, 1_000
SCORES_OF_CLASSES = ("accuracy", "f1_macro", "matthews_correlation")


def scored(part: str) -> None:
    labels, predictions = answers(0, ROWS, CLASSES)
    if part == "scores":
        scores(SCORES_OF_CLASSES, labels, predictions)
    elif part == "intervals":
        score_intervals(SCORES_OF_CLASSES, labels, predictions)
    elif part == "comparison":
        other = answers(1, ROWS, CLASSES)[1]
        for name in SCORES_OF_CLASSES:
            turned(name, labels, predictions, other)
    elif part == "test":
        randomization_test("f1_macro", labels, predictions, np.where(np.arange(ROWS) < 1000, labels, predictions))
    else:
        loss("single_label_classification", np.broadcast_to(np.float32(0), (ROWS, CLASSES)), labels)


@pytest.mark.parametrize("part", ["scores", "intervals", "comparison", "test", "loss"])
def test_scoring_needs_less_memory_than_a_byte_for_each_row_and_class(part: str) -> None:
    tracemalloc.start()
    try:
        scored(part)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < ROWS * CLASSES, f"{peak / 1e6:.0f} MB"


@pytest.mark.parametrize(
    ("labels", "predictions", "f1"),
    [([0, 0], [0, 0], 0.0), ([1, 1], [0, 0], 0.0), ([1, 0], [1, 1], 2 / 3), ([1], [1], 1.0)],
)
def test_f1_edge_cases(labels: list[int], predictions: list[int], f1: float) -> None:
    assert scores(MRPC, np.array(labels), np.array(predictions))["f1"] == f1


def test_scoring_no_labels_is_an_error() -> None:
    with pytest.raises(ValueError, match="no labels"):
        scores(MRPC, np.array([]), np.array([]))


def test_loss_of_extreme_logits_is_finite() -> None:
    assert loss("single_label_classification", np.array([[1000.0, -1000.0]]), np.array([1])) == 2000
    assert loss("single_label_classification", np.array([[1000.0, -1000.0]]), np.array([0])) == 0
    assert (
        loss("single_label_classification", np.array([[1000.0, 0.0], [-1000.0, -2000.0]]), np.array([1, 1])) == 1000
    ), "each row separately"


def test_course_code_with_evaluate_gives_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import evaluate

    monkeypatch.setattr(evaluate.config, "HF_METRICS_CACHE", tmp_path)
    labels, logits = random_case(0)
    predictions = logits.argmax(-1)
    metric = task_metric(task_of("mrpc"))
    for start in range(0, len(labels), 32):
        chunk = slice(start, start + 32)
        metric.add_batch(predictions=predictions[chunk], references=labels[chunk])
    assert metric.compute() == scores(MRPC, labels, predictions)
    assert metric.compute(predictions=predictions, references=labels) == scores(MRPC, labels, predictions)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "no file in the cache, which other runs share"


MADE = {
    "checkpoint": {"checkpoint": "me/mine", "revision": "0123456789abcdef"},
    "code": "fedcba9876543210",
    "data": {"sha256": {"test": "0f"}},
    "run": {"seed": 7},
}


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    from datasets import ClassLabel, Dataset, Features, Value

    out = tmp_path / "predictions"
    out.mkdir()
    task_of("mrpc").write(out)
    (out / PROVENANCE).write_text(json.dumps(MADE))
    label = ClassLabel(names=["not_equivalent", "equivalent"])
    features = Features(
        idx=Value("int32"), label=label, prediction=label,
        logit_0=Value("float64"), logit_1=Value("float64"),
    )  # fmt: skip
    for seed, split in enumerate(("validation", "test", "test_swapped")):
        labels, logits = random_case(seed)
        columns = {
            "idx": range(len(labels)),
            "label": labels,
            "prediction": logits.argmax(-1),
            "logit_0": logits[:, 0],
            "logit_1": logits[:, 1],
        }
        Dataset.from_dict(columns, features=features).to_parquet(out / f"{split}.parquet")
    return out


def test_the_stage_writes_scores_and_the_majority_baseline(predictions: Path, tmp_path: Path) -> None:
    evaluate(predictions, tmp_path / "metrics")
    report = json.loads((tmp_path / "metrics" / "evaluation.json").read_text())
    for seed, split in enumerate(("validation", "test")):
        labels, logits = random_case(seed)
        assert report[split]["n"] == 200
        assert report[split]["accuracy"] == round(float(np.mean(logits.argmax(-1) == labels)), 6)
        assert report[split]["majority_accuracy"] == max(labels.mean(), 1 - labels.mean())
        assert math.isfinite(report[split]["loss"])
        with (tmp_path / "metrics" / "plots" / "confusion.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["split"] == split]
        cells = {(row["actual"], row["predicted"]): int(row["n"]) for row in rows}
        names = ("not_equivalent", "equivalent")
        counts = [[cells[actual, predicted] for predicted in names] for actual in names]
        assert counts == sklearn.confusion_matrix(labels, logits.argmax(-1)).tolist()
    for curve in ("roc", "precision_recall", "reliability", "residuals"):
        assert (tmp_path / "metrics" / "plots" / f"{curve}.csv").read_text().startswith("split,")


def test_the_stage_writes_intervals_and_calibration_diagnostics(predictions: Path, tmp_path: Path) -> None:
    evaluate(predictions, tmp_path / "metrics")
    scores = json.loads((tmp_path / "metrics" / "evaluation.json").read_text())
    intervals, diagnostics = (
        parse_details((tmp_path / "metrics" / f"{name}.json").read_text()) for name in ("intervals", "diagnostics")
    )
    for seed, split in enumerate(("validation", "test")):
        labels, logits = random_case(seed)
        for name in ("accuracy", "f1"):
            assert intervals[split][name]["low"] < scores[split][name] < intervals[split][name]["high"]
            assert diagnostics[split]["at_half"][name] == scores[split][name]
        above = probability(logits) >= diagnostics["threshold"] - 1e-6
        for at, given in (("at_half", logits.argmax(-1)), ("at_threshold", above)):
            for name in ("f1", "precision", "recall"):
                expected_score = getattr(sklearn, f"{name}_score")(labels, given)
                assert diagnostics[split][at][name] == pytest.approx(expected_score, abs=1e-6)
        area = sklearn.roc_auc_score(labels, probability(logits))
        assert diagnostics[split]["roc_auc"] == pytest.approx(area, abs=1e-6)
        confidence = np.maximum(probability(logits), 1 - probability(logits))
        assert diagnostics[split]["confidence"] == pytest.approx(confidence.mean(), abs=1e-6)
        expected = diagnostics[split]["if_calibrated"]
        assert expected == pytest.approx(if_calibrated(confidence)._asdict(), abs=1e-6)
        assert scores[split]["accuracy"] < expected["accuracy_low"], "random predictions, with high confidence"
    labels, logits = random_case(0)
    assert diagnostics["threshold"] == pytest.approx(best_threshold(labels, probability(logits)), abs=1e-6), (
        "chosen on validation, not on test"
    )
    validation = diagnostics["validation"]
    assert validation["at_threshold"]["f1"] >= validation["at_half"]["f1"]
    same = np.mean(random_case(1)[1].argmax(-1) == random_case(2)[1].argmax(-1))
    assert diagnostics["test"]["order_consistency"] == pytest.approx(same)
    assert "order_consistency" not in validation, "predict did not score it with its sentences swapped"


def test_the_stage_needs_neither_torch_nor_the_evaluate_library(predictions: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pipeline.evaluate import evaluate\n"
        f"evaluate(Path({str(predictions)!r}), Path({str(tmp_path / 'out')!r}))\n"
        "print(sorted({'torch', 'evaluate', 'transformers'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_missing_predictions_name_the_stage_to_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'task\.json is missing; run "dvc repro predict"'):
        evaluate(tmp_path / "nowhere", tmp_path / "metrics")
    assert not (tmp_path / "metrics").exists()


def test_the_signature_says_what_the_scores_are_of(
    predictions: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def signed() -> dict[str, str]:
        with caplog.at_level("INFO", logger="pipeline"):
            evaluate(predictions, tmp_path / "metrics")
        found: dict[str, str] = parse_details((tmp_path / "metrics" / "diagnostics.json").read_text())["signature"]
        return found

    first = signed()
    rows = {split: re.fullmatch("200@[0-9a-f]{8}", first.pop(split)) for split in ("validation", "test")}
    assert all(rows.values()) and rows["validation"][0] != rows["test"][0]
    assert first == {
        "task": "mrpc", "metrics": "accuracy+f1", "seed": "7", "checkpoint": "me/mine@01234567", "code": "fedcba98"
    }  # fmt: skip
    line = f"signature: task:mrpc|metrics:accuracy+f1|test:{rows['test'][0]}|validation:{rows['validation'][0]}|seed:7"
    assert f"{line}|checkpoint:me/mine@01234567|code:fedcba98" in caplog.text
    table = pq.read_table(predictions / "test.parquet")
    pq.write_table(table.take(np.arange(len(table))[::-1]), predictions / "test.parquet")
    assert signed()["test"] == rows["test"][0], "the order of rows does not matter"
    for name in ("idx", "label"):
        changed = table[name].to_numpy().copy()
        changed[0] = 1 - changed[0]
        at = table.column_names.index(name)
        pq.write_table(
            table.set_column(at, table.schema.field(name), pa.array(changed, table[name].type)),
            predictions / "test.parquet",
        )
        assert signed()["test"] != rows["test"][0], name
    (predictions / PROVENANCE).write_text(json.dumps(MADE | {"data": {"sha256": {"test": "1f"}}}))
    assert signed()["validation"] != rows["validation"][0], "another corpus"


def test_scores_of_other_things_have_no_mean() -> None:
    one = {"task": "mrpc", "test": "10@aa", "seed": "1", "code": "11"}
    assert joined({"a": one, "b": one | {"seed": "3"}}) == one | {"seed": "1,3"}
    message = "a and c are scores of different things, and have no mean: test 10@aa and 9@bb, code 11 and 22"
    with pytest.raises(UserError, match=message):
        joined({"a": one, "b": one, "c": one | {"seed": "3", "test": "9@bb", "code": "22"}})
