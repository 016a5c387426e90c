"""The sentences of the report. They state facts of this run, and judge only if its numbers support the judgment."""

from typing import Any

import numpy as np
import pandas as pd

from pipeline.core.task import Task
from pipeline.core.text import listing
from pipeline.evaluation.metrics import METRICS, SCORES
from pipeline.reporting.results import MODEL_TITLES, Results
from pipeline.reporting.slices import MIN_ROWS, TOO_FEW, slice_metric

_CERTAIN = 0.8
_MIN_GAIN = 0.01  # The smallest improvement that counts, in proportion to the best earlier score.


def with_unit(value: float, name: str) -> str:
    return SCORES[name].format(value) + ("" if SCORES[name].is_error else "%")


def headline(results: Results) -> str:
    """State the score by which models are compared, in a sentence that needs no context."""
    task, scores = results.task, results.evaluation[results.split]
    name, examples = task.metrics[0], f"{scores['n']:,} {results.split} {task.noun}"
    score, title = with_unit(scores[name], name), METRICS[name].title
    if name == "accuracy" and task.is_single_label:
        return f"The model is right on {score} of {examples}"
    return f"{title[0].upper()}{title[1:]} of {score} on {examples}"


def comparison(results: Results) -> tuple[str, bool]:
    """Compare the model with the simple models, and return whether it is better than all of them."""
    task, scores, name = results.task, results.evaluation[results.split], results.task.metrics[0]
    metric = METRICS[name]
    relation = _relation(results.details["intervals"][name], scores[f"{task.constant_baseline}_{name}"], metric.sign)
    if results.scored.is_constant and not metric.is_ranking:
        return f"The model gives the same prediction for all {scores['n']:,} {task.noun}: do not rely on it.", False
    if relation != "better":
        constant = task.format_label(results.diagnostics["constant_prediction"], separator=", ", if_empty="no label")
        baseline = f"“{constant}” ({MODEL_TITLES[task.constant_baseline]})"
        return f"The model is {relation} than always predicting {baseline}: do not rely on it.", False
    if results.is_sample:
        return "The simple models learned from all rows of train, so they are not compared with this model.", False
    sentence, is_better = _gain(results.details["gain_over_linear"], "a linear model", task)
    if "gain_over_frozen" in results.details:
        gain = results.details["gain_over_frozen"]
        other_sentence, beats_frozen = _gain(gain, "the base model without fine-tuning", task)
        if not beats_frozen:
            return f"{sentence} {other_sentence}", False
    return sentence, is_better


def _gain(gains: dict[str, Any] | None, simple_model: str, task: Task) -> tuple[str, bool]:
    """Compare the model with a simple model, and return whether it is better."""
    if gains is None:
        return f"The model and {simple_model} differ on too few {task.noun} to say which one is better.", False
    gain, metric = gains[task.metrics[0]], METRICS[task.metrics[0]]
    relation = _relation(gain, 0, metric.sign)
    value, low, high = (metric.format_difference(gain[key]) for key in ("value", "low", "high"))
    difference = f"the difference in {metric.title} is {value}{'' if metric.is_error else ' points'}"
    sentence = f"The model is {relation} than {simple_model}: {difference} (95% interval: {low} to {high})."
    return sentence, relation == "better"


def _relation(interval: dict[str, Any], value: float, sign: int) -> str:
    """Compare a score that has an interval with a value."""
    if interval["low"] <= value <= interval["high"]:
        return "not clearly better"
    return "better" if sign * (interval["low"] - value) > 0 else "clearly worse"


def learning(results: Results) -> str:
    """Say which epoch was kept and why, and give at most one advice."""
    training, history = results.training, results.history
    epochs = history[history["split"] != "train"].reset_index(drop=True)
    name, kept, last = training["metric_for_best_model"], training["kept_epoch"], len(epochs)
    if training["degenerate"] and not METRICS[results.task.metrics[0]].is_ranking:
        return "The model predicts the same for all of validation. Try another train.lr, more epochs or another seed."
    values = SCORES[name].sign * epochs[name]
    best = (values.index[values == values.max()] + 1).tolist()
    title, score = f"validation {SCORES[name].title}", with_unit(epochs[name][best[0] - 1], name)
    after = " and ".join(f"epoch {epoch}" for epoch in best)
    finding = f"The best {title} is {score}, after {after} of {last}. Epoch {kept} was kept."
    if last < training["epochs"]:
        return f"{finding} Training stopped early, after {last} of {training['epochs']} epochs."
    earlier = values[:-1].max()  # NaN if there was only one epoch
    if epochs["loss"].argmin() == last - 1 and values[last - 1] - earlier > _MIN_GAIN * abs(earlier):
        return f"{finding} It was still improving, so more epochs may help."
    return finding


def calibration(results: Results) -> str:
    """Say whether confidence and accuracy disagree by more than chance explains."""
    details, predictions = results.details, results.scored
    right, expected = np.mean(predictions.labels == predictions.predicted), details["if_calibrated"]
    numbers = f"mean confidence is {details['confidence']:.1%}, and {right:.1%} of the predictions"
    if results.task.is_multi_label:  # The simulation does not know that the labels of an example share their errors.
        return f"The {numbers}, one for each {results.task.singular_noun} and label, are right."
    verdict = "No sign of over- or underconfidence"
    if not expected["accuracy_low"] <= right <= expected["accuracy_high"]:
        verdict = "Overconfident" if right < expected["accuracy_low"] else "Underconfident"
    elif details["calibration_error"] > expected["calibration_error_high"]:
        verdict = "Too sure of some predictions, and not sure enough of others"
    return f"{verdict}: the {numbers} are right."


def certain_predictions(results: Results) -> str:
    """Say how accurate the predictions are that `classify --min-probability 0.8` would keep."""
    is_certain, examples = results.scored.confidence.min(axis=1) >= _CERTAIN, f"{results.split} {results.task.noun}"
    kept = f"The model is at least {_CERTAIN:.0%} sure of {is_certain.mean():.1%} of the {examples}"
    if not is_certain.any():
        return f"{kept}."
    return f"{kept}, and is right on {results.scored.is_correct[is_certain].mean():.1%} of these."


def classes(results: Results) -> str:
    """Say which classes or labels are never predicted, or predicted worst."""
    scores = results.classes.query("n > 0")
    if scores.empty:
        return "No example has a label."
    if missing := scores.index[scores["precision"].isna()].tolist():
        names = listing([f"“{name}” (0 of {scores['n'][name]:,.0f})" for name in missing], 5)
        return f"Never predicted on {results.split}: {names}."
    if scores["f1"].min() == 1:
        return "All predictions are right."
    worst = scores["f1"].idxmin()
    precision, recall = (f"{scores[column][worst]:.1%}" for column in ("precision", "recall"))
    return f"“{worst}” is predicted worst: its precision is {precision}, and its recall is {recall}."


def errors(results: Results) -> str:
    """Say how far the predictions of a regression are off."""
    details, rmse = results.details, METRICS["rmse"]
    size, bias = rmse.format(details["mean_absolute_error"]), rmse.format_difference(details["mean_error"])
    return f"The predictions are off by {size} on average, and their mean is off by {bias}."


def slices(results: Results, scored: pd.DataFrame) -> str:
    """Name the slices that are clearly worse than all examples together."""
    noun, name = results.task.noun, slice_metric(results.task)
    if (scored["verdict"] == TOO_FEW).all():
        return f"No slice has at least {MIN_ROWS} {noun}, so none is judged."
    worse = scored[scored["verdict"] == "worse"]
    if worse.empty:
        return f"No slice has a clearly worse {METRICS[name].title} than all {noun} together."
    names = listing([f"{row.slice} ({with_unit(row.value, name)})" for row in worse.itertuples()], 3)
    return f"Clearly worse than all {noun}: {names}. With {len(scored)} slices, one may look worse by chance."
