"""Synthetic training curves get the right findings."""

import io
import re

import pandas as pd
import pytest

from pipeline.reporting.training_curves import describe_curves, epochs


def curve(validation_loss: list[float], f1: list[float], train_loss: list[float | None] | None = None) -> pd.DataFrame:
    numbers = pd.RangeIndex(1, len(f1) + 1)
    falling = [0.6 / number for number in numbers]
    columns = {
        "train_loss": train_loss or falling,
        "loss": validation_loss,
        "f1": f1,
        "rmse": [2 - score for score in f1],
    }
    return pd.DataFrame(columns, numbers, dtype=float)


CURVES = {
    "one epoch": (curve([0.5], [0.8]), ["Too short"]),
    "improves to the end": (curve([0.6, 0.5, 0.4], [0.82, 0.86, 0.89]), ["Still improving"]),
    "improves by less than half a point": (curve([0.6, 0.5, 0.4], [0.82, 0.886, 0.89]), ["Leveled off"]),
    "F1 and loss both rise": (curve([0.5, 0.4, 0.41], [0.82, 0.86, 0.89]), ["Leveled off"]),
    "best in the middle": (curve([0.5, 0.4, 0.41], [0.85, 0.9, 0.895]), ["Leveled off"]),
    "loss climbs from its minimum": (
        curve([0.5, 0.4, 0.45, 0.55], [0.85, 0.9, 0.9, 0.895]),
        ["Overfitting from epoch 3"],
    ),
    "loss climbs from the first epoch": (curve([0.4, 0.45, 0.55], [0.9, 0.9, 0.895]), ["Overfitting from epoch 2"]),
    "loss climbs by less than 5%": (curve([0.5, 0.4, 0.415], [0.85, 0.9, 0.9]), ["Leveled off"]),
    "train loss climbs as well": (curve([0.5, 0.4, 0.55], [0.85, 0.9, 0.9], [0.5, 0.4, 0.6]), ["Leveled off"]),
    "train loss was not logged": (curve([0.5, 0.4, 0.55], [0.85, 0.9, 0.9], [None] * 3), ["Leveled off"]),
    "F1 falls and rises again": (curve([0.5, 0.49, 0.5, 0.49], [0.9, 0.87, 0.9, 0.9]), ["Leveled off"]),
}


@pytest.mark.parametrize("case", CURVES)
def test_a_curve_has_the_right_findings(case: str) -> None:
    run, names = CURVES[case]
    assert [name for name, _ in describe_curves(run, "f1", len(run), degenerate=False)] == names


def test_early_stopping_is_reported_next_to_the_other_finding() -> None:
    run, names = CURVES["loss climbs from its minimum"]
    findings = describe_curves(run, "f1", 10, degenerate=False)
    assert [name for name, _ in findings] == [*names, "Stopped early"]
    assert "after epoch 4 of 10" in findings[-1][1]
    assert "not improved since epoch 2" in findings[-1][1]


def test_a_degenerate_model_has_no_other_finding() -> None:
    run, _ = CURVES["improves to the end"]
    assert [name for name, _ in describe_curves(run, "f1", 3, degenerate=True)] == ["Constant predictions"]


def test_a_finding_quotes_its_numbers() -> None:
    run, _ = CURVES["loss climbs from its minimum"]
    [(_, text)] = describe_curves(run, "f1", 4, degenerate=False)
    assert re.search(r"epoch 2, .*0\.400 to 0\.550, .*training loss .*0\.300 to 0\.150\.", text)


def test_epochs_are_read_from_the_history() -> None:
    history = """step,epoch,split,loss,accuracy,f1,lr
10,0.5,train,0.6,,,1e-5
20,1.0,train,0.4,,,2e-5
20,1.0,validation,0.45,0.8,0.85,
40,2.0,validation,0.4,0.85,0.9,
50,2.5,train,0.2,,,1e-5
60,3.0,validation,0.41,0.84,0.89,
"""
    table = epochs(pd.read_csv(io.StringIO(history)))
    assert table.index.tolist() == [1, 2, 3]
    assert table["train_loss"].fillna(-1).tolist() == [0.5, -1, 0.2]
    assert table["f1"].tolist() == [0.85, 0.9, 0.89]


@pytest.mark.parametrize(("name", "title"), [("rmse", "RMSE"), ("loss", "loss")])
def test_lower_is_better_for_errors_and_for_the_loss(name: str, title: str) -> None:
    [(finding, text)] = describe_curves(CURVES["improves to the end"][0], name, 3, degenerate=False)
    assert finding == "Still improving"
    assert re.search(rf"best validation {title}, by 0\.\d+", text)
    *_, (_, stopped) = describe_curves(CURVES["loss climbs from its minimum"][0], name, 9, degenerate=False)
    assert f"validation {title} had not improved since epoch 2" in stopped
