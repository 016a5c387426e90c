"""`python -m pipeline.learning_curve`: the curve through made-up errors, and real experiments of a toy pipeline."""

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from conftest import Project
from toy import TRAIN_ROWS, experiment, restore

from pipeline.core.messages import UserError
from pipeline.evaluation.metrics import Floats
from pipeline.evaluation.predictions import Predictions
from pipeline.experiments import running
from pipeline.experiments.learning_curve import (
    SIZE,
    _content,
    _interval,
    _require_enough,
    describe_gains,
    run_learning_curve,
    summary_lines,
)
from pipeline.experiments.power_law import fit_power_laws, plausible_curves, predicted_errors
from pipeline.experiments.revisions import Run, experiment_commits, group_commits
from pipeline.experiments.running import Experiment, run_all
from pipeline.experiments.seed_groups import seed_group_name
from pipeline.experiments.sides import Side
from pipeline.learning_curve import learning_curve
from pipeline.reporting.charts import training_sizes
from pipeline.sources.demo import DEMO

MULTIPLES = np.array([1 / 16, 1 / 8, 1 / 4, 1 / 2, 1])
OVERRIDES = ["train.max_train_samples=null"]  # tests/params.yaml has a limit


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


def jackknives(errors: Floats, between_seeds: float, between_examples: float, seed: int = 0) -> Floats:
    """Return the jackknives of three runs of each size. All sizes share the random effect of the examples."""
    random = np.random.default_rng(seed)
    runs = errors[:, None] + between_seeds * random.standard_normal((len(errors), 3))
    groups = random.standard_normal(200) * between_examples / 200**0.5
    return np.concatenate([runs[..., None], runs[..., None] + groups], axis=2)


def gain(curves: Floats) -> tuple[float, float]:
    """Return the 80% interval of the gain from twice the rows."""
    low, high = np.quantile(predicted_errors(curves, 1) - predicted_errors(curves, 2), [0.1, 0.9])
    return float(low), float(high)


def test_flat_and_noisy_scores_do_not_exclude_that_more_rows_gain_nothing() -> None:
    flat = np.full(5, 0.2)
    gains = [gain(plausible_curves(MULTIPLES, jackknives(flat, 0.02, 0.02, seed))) for seed in range(20)]
    assert sum(low < 0.0005 for low, _ in gains) >= 16, "the lower end of an 80% interval is wrong in 10% of cases"
    assert all(0 < high < 0.03 for _, high in gains)


def test_the_gain_is_uncertain_between_seeds_but_hardly_between_examples_that_all_sizes_share() -> None:
    errors = 0.08 + 0.1 * MULTIPLES**-0.4
    true = 0.1 * (1 - 2**-0.4)
    widths = {}
    for noise in ((0.001, 0.001), (0.001, 0.02), (0.01, 0.001)):
        low, high = gain(plausible_curves(MULTIPLES, jackknives(errors, *noise)))
        assert low < true < high
        widths[noise] = high - low
    assert widths[0.001, 0.02] < 2 * widths[0.001, 0.001]
    assert widths[0.01, 0.001] > 3 * widths[0.001, 0.001]


def test_the_examples_are_a_part_of_the_uncertainty_of_the_score_itself() -> None:
    curves = plausible_curves(MULTIPLES, jackknives(0.08 + 0.1 * MULTIPLES**-0.4, 0.001, 0.02))
    assert predicted_errors(curves, 1).std() == pytest.approx(0.02, rel=0.2)


def test_the_smallest_sizes_do_not_decide_alone() -> None:
    """A model that learns nothing from the smallest samples says little about the gain from the next rows."""
    errors = np.array([0.4, 0.4, 0.25, 0.2, 0.19])
    low, _ = gain(plausible_curves(MULTIPLES, jackknives(errors, 0.002, 0.002)))
    assert low < 0.01 < gain(fit_power_laws(MULTIPLES, errors[None]))[0]


def test_too_few_rows_are_rejected_with_the_number_of_points_that_is_possible() -> None:
    _require_enough([160, 80, 40, 20, 10])
    message = r"^train has 159 rows, .* 5 samples would have 9 rows, .* at least 10\. Use --points 4\.$"
    with pytest.raises(UserError, match=message):
        _require_enough([159, 79, 39, 19, 9])
    _require_enough([159, 79, 39, 19])
    with pytest.raises(UserError, match=r"^train has 39 rows, .* too few rows for a learning curve\.$"):
        _require_enough([39, 19, 9])


@pytest.mark.parametrize(
    ("points", "seeds", "jobs", "overrides", "message"),
    [
        (2, 3, 1, OVERRIDES, r"^--points must be at least 3, got 2\."),
        (5, 1, 1, OVERRIDES, r"^--seeds must be at least 2, got 1\."),
        (5, 3, 0, OVERRIDES, r"^--jobs must be at least 1, got 0\.$"),
        (5, 3, 1, [], r"^train\.max_train_samples is chosen .* null\. .* interrupted .*git diff params\.yaml"),
    ],
)
def test_wrong_arguments_are_rejected_before_anything_runs(
    points: int, seeds: int, jobs: int, overrides: list[str], message: str, toy: Project
) -> None:
    with pytest.raises(UserError, match=message):
        learning_curve(points, seeds, overrides, jobs)
    assert not experiment_commits()


def record(project: Project, sizes: list[int], seeds: int, **overrides: str) -> dict[int, str]:
    """Record the runs of some sizes, and return the names of the seed groups, keyed by size."""
    settings = [*OVERRIDES, *(f"{key.replace('__', '.')}={value}" for key, value in overrides.items())]
    groups = {}
    for size in sizes:
        groups[size] = seed_group_name(settings if size == TRAIN_ROWS else [*settings, f"{SIZE}={size}"])
        for seed in range(1, seeds + 1):
            changes = {"train__max_train_samples": "null" if size == TRAIN_ROWS else f"{size}", **overrides}
            experiment(project, f"{groups[size]}-{seed}", train__seed=f"{seed}", **changes)
    restore(project)
    return groups


@pytest.mark.slow  # takes 20 seconds
def test_the_missing_runs_are_run_and_the_scores_come_from_validation(
    toy: Project, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    groups = record(toy, [512, 256, 128], 3, train__lr="1e-3")
    toy.run("dvc", "exp", "remove", f"{groups[512]}-1", f"{groups[128]}-2")
    learning_curve(3, 2, [*OVERRIDES, "train.lr=1e-3"], 1)
    name = f"curve-{groups[512].removeprefix('seeds-')}-3x2"
    log = "\n".join(caplog.messages)
    assert f"{name}: the first run has all rows of train." in log
    assert re.search(r"^run 1 of 6: done$", log, re.M)
    assert f"{name}: 5 of 6 runs are finished" in log
    assert re.search(r"^run 6 of 6, 128 rows: done$", log, re.M)
    assert set(re.findall(r"^run (\d) of 6", log, re.M)) == {"1", "6"}
    assert [list(group_commits(group)) for group in groups.values()] == [[1, 2, 3]] * 3
    assert toy.git("status", "--porcelain") == "", "the workspace is unchanged"

    printed = capsys.readouterr().out
    content = json.loads(Path("learning_curves", name, "curve.json").read_text())
    assert [point["rows"] for point in content["points"]] == [128, 256, 512]
    assert [point["group"] for point in content["points"]] == [groups[size] for size in (128, 256, 512)]
    for point in content["points"]:
        evaluations = [
            json.loads(toy.git("show", f"{group_commits(point['group'])[seed]}:metrics/evaluation.json"))
            for seed in (1, 2)
        ]
        expected = [evaluation["validation"]["accuracy"] for evaluation in evaluations]
        assert point["scores"] == pytest.approx(expected, abs=1e-6)
        assert point["value"] == pytest.approx(np.mean(expected), abs=1e-6)
        assert point["low"] < point["value"] < point["high"] <= 1
        assert re.search(rf"^{point['group']} +{point['rows']} +2 +{100 * point['value']:.2f} ", printed, re.M)
    assert [entry["rows"] for entry in content["gains"]] == [120, 250, 510]
    assert re.search(r"^510 more rows: \+\d\.\d to \+\d\.\d points of validation accuracy \(80% inter", printed, re.M)
    curve = {entry["rows"]: entry for entry in content["curve"]}
    assert max(curve) == 1024
    assert curve[512]["low"] == curve[512]["value"] == curve[512]["high"]
    assert [curve[size]["value"] for size in (128, 256, 512)] == pytest.approx(
        [point["value"] for point in content["points"]], abs=0.03
    )
    assert curve[1024]["high"] - curve[512]["value"] > content["gains"][-1]["high"] > content["gains"][0]["high"]
    assert "validation:100@" in printed

    page = Path("learning_curves", name, "curve.html").read_text()
    for sentence in describe_gains(content):
        assert f">{sentence}</li>" in page
    caplog.clear()
    learning_curve(3, 2, [*OVERRIDES, "train.lr=1e-3"], 1)
    assert capsys.readouterr().out == printed
    assert caplog.messages == [f"{name}: 6 of 6 runs are finished"]
    assert Path("learning_curves", name, "curve.html").read_text() == page


def test_the_curve_of_an_error_falls(toy: Project) -> None:
    settings = {"data__task": "stsb", "evaluate__metrics": "[rmse]", "train__keep": "last"}
    record(toy, [512, 256, 128], 2, **settings)
    overrides = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    content = run_learning_curve(3, 2, [*OVERRIDES, *overrides], 1)
    values = [point["value"] for point in content["points"]]
    assert values == sorted(values, reverse=True)
    for change in content["gains"]:
        assert change["low"] < change["value"] < change["high"] <= 0
    text = "\n".join(summary_lines(content))
    assert re.search(r"^510 more rows: -\d\.\d+ to [-+]\d\.\d+ in validation RMSE \(80% interval\)$", text, re.M)
    drawing = training_sizes(content["points"], content["curve"], content["metric"])
    assert "%" not in json.dumps(drawing), "an error is not in percent"
    drawn = [[row["rows"] for row in rows] for rows in drawing["datasets"].values()]
    assert sorted((min(rows), max(rows)) for rows in drawn) == [(128, 512), (128, 512), (512, 1024)]


@pytest.mark.parametrize("degenerate_size", [160, 1280])
def test_a_size_with_a_degenerate_run_is_left_out_of_the_curve(degenerate_size: int) -> None:
    """It could pull the curve down, although the model has only failed to learn."""
    labels, luck = np.arange(400) % 2, np.random.default_rng(0).random(400)

    def side(rows: int, *, collapsed: bool = False, examples: int = 400) -> Side:
        random, runs = np.random.default_rng(rows), []
        for seed in (1, 2):
            right = luck < 0.95 - 3 * rows**-0.5 + 0.01 * random.standard_normal()
            predicted = np.zeros(400, dtype=int) if collapsed else np.where(right, labels, 1 - labels)
            logits = np.zeros((examples, 2))
            values = labels[:examples], predicted[:examples], logits, logits + 0.5
            predictions = Predictions(np.arange(examples), *values)
            signature = {name: name for name in ("task", "metrics", "validation", "checkpoint", "code")}
            details = {"name": f"{rows}-{seed}", "seed": seed, "task": DEMO, "signature": signature}
            runs.append(SimpleNamespace(predictions={"validation": predictions}, **details))
        return Side(f"{rows}", cast("list[Run]", runs))

    rows = [160, 320, 640, 1280]
    clean = _content([side(number) for number in rows[1:]], rows[1:])
    assert clean["gains"][-1]["high"] > 0.005
    content = _content([side(number, collapsed=number == degenerate_size) for number in rows], rows)
    assert [bool(point["warning"]) for point in content["points"]] == [number == degenerate_size for number in rows]
    if degenerate_size == 160:
        assert content["gains"] == clean["gains"]
    else:
        assert content["gains"] == [], "without the score of all rows, nothing is predicted"
    assert all(entry["rows"] >= 320 and 0 <= entry["value"] <= 1 for entry in content["curve"])
    text = "\n".join(summary_lines({**content, "caveats": []}))
    assert f"Warning: {degenerate_size} is degenerate in 2 of 2 runs" in text
    assert ("the curve leaves out this size" in text) == bool(content["curve"])
    assert "not reliable" not in text, "400 examples are enough"
    [warning] = _content([side(number, examples=60) for number in rows], rows)["warnings"]
    assert warning == "Warning: validation has only 60 pairs, so the prediction is not reliable."
    assert ("This curve gives no prediction." in text) == (degenerate_size == 1280)
    layers = training_sizes(content["points"], content["curve"], "accuracy")["layer"]
    assert len(layers) == (5 if content["curve"] else 2), (
        "without a curve, only the points and their intervals are drawn"
    )


def test_a_perfect_score_has_an_interval() -> None:
    labels = np.arange(100) % 2
    run = Predictions(np.arange(100), labels, labels, np.zeros((100, 2)), np.full((100, 2), 0.5))
    low, high = _interval("accuracy", np.ones((3, 101)), run)
    assert 0.95 < low < 0.98
    assert high == 1


def test_smaller_samples_take_less_time_in_the_remaining_time(
    toy: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [0.0]

    def run(experiment: Experiment, children: object) -> None:
        clock[0] += 100 * experiment.fraction

    monkeypatch.setattr(running, "_run", run)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    experiments = [Experiment("a", [], "", "", fraction=fraction) for fraction in (1, 0.5, 0.25)]
    run_all(experiments, 1)
    assert caplog.messages == ["runs to go: 2, about 0:01:15", "runs to go: 1, about 0:00:25"]


@pytest.mark.slow
def test_a_learning_curve_from_nothing(toy: Project) -> None:
    command = ["python", "-m", "pipeline.learning_curve", "--points", "3", "--seeds", "2", "--jobs", "2"]
    command += ["-S", OVERRIDES[0], "-S", "train.lr=7e-4"]
    printed = toy.run(*command)
    assert printed.index("run 1 of 6: done") < printed.index("1 of 6 runs are finished")
    assert sorted(re.findall(r"^run (\d) of 6.*: done$", printed, re.M)) == list("123456")
    assert re.search(r"^runs to go: 1, about 0:0\d:\d\d$", printed, re.M)
    [page] = re.findall(r"^Chart: (learning_curves/curve-\w+-3x2/curve\.html)$", printed, re.M)
    assert (toy.root / page).exists()
    assert toy.git("status", "--porcelain") == ""
    again = toy.run(*command)
    assert "6 of 6 runs are finished" in again
    assert printed.endswith(again.partition("finished\n")[2])
    assert not re.findall("done$", again, re.M)
