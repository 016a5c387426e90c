"""`python -m pipeline.learning_curve`: the curve through made-up errors, and real experiments of a toy pipeline."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Project, update_json
from toy import experiment, restore

from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.evaluation.metrics import Floats
from pipeline.evaluation.predictions import Predictions
from pipeline.experiments.groups import SIZE
from pipeline.experiments.launch import experiments, group_name
from pipeline.experiments.learning_curves import curve_record, fit_power_laws, plausible_curves, predicted_errors
from pipeline.experiments.runs import Run, Side
from pipeline.learning_curve import learning_curve, summary
from pipeline.sources.demo import DEMO
from pipeline.sources.glue import glue_task

MULTIPLES = np.array([1 / 16, 1 / 8, 1 / 4, 1 / 2, 1])


@pytest.mark.parametrize(
    ("asymptote", "factor", "exponent"), [(0.05, 0.1, 0.5), (0, 0.2, 0.3), (0.1, 0.02, 1), (3, 1, 0.7)]
)
def test_the_fit_recovers_a_known_curve(asymptote: float, factor: float, exponent: float) -> None:
    errors = asymptote + factor * MULTIPLES ** -float(exponent)
    curves = fit_power_laws(MULTIPLES, np.stack([errors, errors]))
    assert curves == pytest.approx(np.array([[asymptote] * 2, [factor] * 2, [exponent] * 2]), abs=1e-9)
    assert predicted_errors(curves, 2) == pytest.approx(np.full(2, asymptote + factor * 2.0**-exponent))


def test_a_fitted_error_never_grows_and_never_becomes_negative() -> None:
    growing, falling_fast, negative = np.linspace(0.1, 0.3, 5), 0.5 - 0.12 * np.arange(5), np.full(5, -0.01)
    curves = fit_power_laws(MULTIPLES, np.stack([growing, falling_fast, negative]))
    errors = np.stack([predicted_errors(curves, multiple) for multiple in (0.1, 1, 2, 1e9)])
    assert errors.min() >= 0
    assert np.diff(errors, axis=0).max() <= 0
    assert errors[:, 0] == pytest.approx(np.full(4, growing.mean()))


def jackknives(errors: Floats, between_seeds: float, between_examples: float) -> Floats:
    """Return the jackknives of three runs of each size. All sizes share the random effect of the examples."""
    random = np.random.default_rng(0)
    runs = errors[:, None] + between_seeds * random.standard_normal((len(errors), 3))
    groups = random.standard_normal(200) * between_examples / 200**0.5
    return np.concatenate([runs[..., None], runs[..., None] + groups], axis=2)


def test_the_gain_is_uncertain_between_seeds_but_hardly_between_examples_that_all_sizes_share() -> None:
    errors = 0.08 + 0.1 * MULTIPLES**-0.4
    widths = {}
    for noise in ((0.001, 0.001), (0.001, 0.02), (0.01, 0.001)):
        curves = plausible_curves(MULTIPLES, jackknives(errors, *noise))
        low, high = np.quantile(predicted_errors(curves, 1) - predicted_errors(curves, 2), [0.1, 0.9])
        assert low < 0.1 * (1 - 2**-0.4) < high
        widths[noise] = high - low
        if noise == (0.001, 0.02):
            assert predicted_errors(curves, 1).std() == pytest.approx(0.02, rel=0.2), "the score itself is uncertain"
    assert widths[0.001, 0.02] < 2 * widths[0.001, 0.001]
    assert widths[0.01, 0.001] > 3 * widths[0.001, 0.001]


def curve(
    sizes: list[int], collapsed: int = 0, examples: int = 400, accuracy: float = 0.95, task: Task = DEMO
) -> dict[str, Any]:
    """Return the content of curve.json for made-up seed groups. The models of one size may have learned nothing."""
    labels, luck, sides = np.arange(400) % 2, np.random.default_rng(0).random(400), {}
    for rows in sizes:
        random, runs = np.random.default_rng(rows), []
        for seed in (1, 2):
            is_right = luck < accuracy - 3 * rows**-0.5 + 0.01 * random.standard_normal()
            predicted = np.where(is_right, labels, 1 - labels) if rows != collapsed else np.zeros(400, dtype=int)
            arrays = np.arange(400), labels, predicted, np.zeros((400, 2)), np.full((400, 2), 0.5)
            predictions = Predictions(*arrays, pd.DataFrame(index=range(400)))[:examples]
            runs.append(Run(f"{rows}-{seed}", task, {}, {"validation": predictions}))
        sides[rows] = Side(f"{rows}", runs)
    return curve_record(sides)


@pytest.mark.parametrize("collapsed", [160, 1280])
def test_a_size_with_a_degenerate_run_is_left_out_of_the_curve(collapsed: int) -> None:
    """It could pull the curve down, although the model has only failed to learn."""
    clean = curve([320, 640, 1280])
    assert clean["gains"][-1]["high"] > 0.005
    content = curve([160, 320, 640, 1280], collapsed=collapsed)
    assert [point["rows"] for point in content["points"] if point["warnings"]] == [collapsed]
    assert [line for line in summary(content) if line.startswith("Warning") and f"{collapsed}-1" in line]
    assert all(entry["rows"] >= 320 and 0 <= entry["value"] <= 1 for entry in content["curve"])
    assert content["gains"] == (clean["gains"] if collapsed == 160 else []), "all rows are needed for a prediction"
    assert bool(content["unknown"]) == (collapsed == 1280)


def test_with_few_validation_rows_the_answer_is_unknown() -> None:
    content = curve([160, 320, 640], examples=60)
    assert content["gains"] == content["curve"] == []
    assert [line for line in summary(content) if "unknown" in line and "100" in line]


def test_a_perfect_score_has_an_interval() -> None:
    point = curve([160, 320, 640], accuracy=2)["points"][-1]
    assert 0.98 < point["low"] < point["high"] == 1


def test_the_curve_of_an_error_falls() -> None:
    content = curve([160, 320, 640], task=replace(glue_task("stsb"), metrics=["rmse"]))
    values = [point["value"] for point in content["points"]]
    assert values == sorted(values, reverse=True)
    for change in content["gains"]:
        assert change["low"] < change["value"] < change["high"] <= 0
    assert [
        line for line in summary(content) if re.match(r"640 more rows: -0\.\d+ to -\d\.\d+ in validation RMSE", line)
    ]


def test_the_missing_runs_are_run_and_the_scores_come_from_validation(
    toy: Project, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UserError, match=SIZE):
        learning_curve(3, 2, [], 1)
    toy.set(SIZE, "null")
    with pytest.raises(UserError, match=r"512 rows.* 11 sizes"):
        learning_curve(11, 2, [], 1)
    toy.commit("all rows")
    overrides = ["train.lr=9e-4"]
    names = {size: group_name([*overrides, f"{SIZE}={size}"]) for size in (128, 256)} | {512: group_name(overrides)}
    for size, seed in itertools.product(names, (1, 2)):
        if (size, seed) != (128, 2):
            limit = "null" if size == 512 else f"{size}"
            changes = {"train__lr": "9e-4", "train__seed": f"{seed}", "train__max_train_samples": limit}
            experiment(toy, f"{names[size]}-{seed}", **changes)
    restore(toy)
    learning_curve(3, 2, overrides, 1)
    assert "5 of 6 runs are finished" in caplog.messages
    assert not any("unknown" in message for message in caplog.messages)
    assert toy.git("status", "--porcelain") == "", "the workspace is unchanged"
    printed = capsys.readouterr().out
    directory = Path("learning_curves", names[512])
    content = json.loads((directory / "curve.json").read_text(), parse_constant=pytest.fail)
    assert [(point["rows"], point["group"]) for point in content["points"]] == sorted(names.items())
    for point in content["points"]:
        commits = [experiments()[f"{point['group']}-{seed}"] for seed in (1, 2)]
        evaluations = [json.loads(toy.git("show", f"{commit}:metrics/evaluation.json")) for commit in commits]
        assert point["scores"] == pytest.approx([entry["validation"]["accuracy"] for entry in evaluations], abs=1e-6)
        assert point["low"] < point["value"] < point["high"] <= 1
        row = rf"^{re.escape(point['group'])} +{point['rows']} +2 +{100 * point['value']:.2f} "
        assert re.search(row, printed, re.M)
    assert [entry["rows"] for entry in content["gains"]] == [128, 256, 512]
    assert re.search(r"^512 more rows: \+\d\.\d to \+\d\.\d points of validation accuracy \(80% inter", printed, re.M)
    fitted = {entry["rows"]: entry for entry in content["curve"]}
    assert max(fitted) == 1024
    for point in content["points"]:
        assert fitted[point["rows"]]["value"] == pytest.approx(point["value"], abs=0.03)
    assert (directory / "curve.svg").read_text().startswith("<svg")

    card = Path("data/raw/data_card.json")
    update_json(card, splits=json.loads(card.read_text())["splits"] | {"validation": {"rows": 60}})
    update_json(Path("data/raw/source.json"), files=["another.csv"])
    with pytest.raises(UserError, match="data/raw is not up to date"):
        learning_curve(3, 2, overrides, 1)
    assert any("100 validation rows" in message and "unknown" in message for message in caplog.messages)
