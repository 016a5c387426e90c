"""The report, and the page of a learning curve: HTML pages that need no network."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd

from pipeline.core.data_card import MAX_TRUNCATED, label_table
from pipeline.core.task import Task
from pipeline.core.text import format_number, percent
from pipeline.evaluation.metrics import METRICS, applicable_metrics
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.uncertainty import MIN_EXAMPLES, score_caveats
from pipeline.reporting import charts, mistakes, training_curves
from pipeline.reporting.results import BASELINES, Results, never_predicted
from pipeline.reporting.slices import MIN_ROWS, Slice, score_slices, slice_metrics
from pipeline.reporting.templates import TEMPLATES, better_or_worse

_MAX_CLASSES = 40  # in a confusion matrix, and listed with their proportions
_MAX_WIDE_COLUMNS = 6  # of a confusion matrix. With more classes, percentages would not fit on the page.
_CONFUSIONS = 5  # listed
_MODEL_THRESHOLD = 0.5  # the probability above which the model predicts class 1 of two


def page(results: Results) -> str:
    """Render the page as HTML. It contains no date and no path, so the same results give the same text."""
    task, predictions, training = results.task, results.predictions, results.training
    verdict_split = task.verdict_split
    splits = task.verdict_split_first
    # Take the names from history.csv: its columns are in the order of the task's metrics during training.
    curve_names = [name for name in results.history.columns if name in METRICS]
    epochs = training_curves.epochs(results.history)
    slices = {split: score_slices(task, results.rows[split], predictions[split]) for split in splits}
    threshold = results.diagnostics.get("threshold")  # only with two classes
    proportion_right = float(np.mean(predictions[verdict_split].labels == predictions[verdict_split].predicted))
    slice_metric = slice_metrics(task)[0]
    overall = results.diagnostics[verdict_split]["scores"][slice_metric]
    caveats = score_caveats(
        task.metrics, task, verdict_split, predictions[verdict_split].labels, split_type=results.split_type
    )
    return TEMPLATES.get_template("page.html.jinja").render(
        **vars(results),
        baseline_names=BASELINES,
        better_threshold=None if threshold in (None, _MODEL_THRESHOLD) else f"{threshold:.6g}",
        calibration_verdict=_calibration_verdict(results.diagnostics[verdict_split], proportion_right),
        charts=_charts(results, splits, epochs, curve_names, slices[verdict_split]),
        confusions={split: _confusion(predictions[split], len(task.labels)) for split in splits},
        curve_names=curve_names,
        curve_findings=training_curves.describe_curves(
            epochs,
            training["metric_for_best_model"],
            training["epochs"],
            # A ranking metric, such as ROC AUC, may be good although the predictions are constant.
            training["degenerate"] and not METRICS[task.metrics[0]].is_ranking,
        ),
        epochs=epochs.to_dict("index"),
        min_rows=MIN_ROWS,
        guessing=_guessing(task, results.diagnostics["constant_prediction"]),
        label_table=label_table(task, results.card),
        meanings={name: metric.meaning for name, metric in METRICS.items()},
        mistakes=[
            (group, [_mistake(results, verdict_split, position) for position in group.positions])
            for group in mistakes.worst_mistakes(task, predictions[verdict_split])
        ],
        max_classes=_MAX_CLASSES,
        never_predicted=never_predicted(results.diagnostics[verdict_split]),
        proportion_right=proportion_right,
        sample_size=results.sample_size,
        scores_missing=any(len(part.scores) < len(slice_metrics(task)) for split in splits for part in slices[split]),
        script=charts.javascript(),
        sections=_sections(task),
        shows_percentages=len(task.labels) <= _MAX_WIDE_COLUMNS,
        slice_metric=slice_metric,
        slice_names=slice_metrics(task),
        slices=slices,
        splits=splits,
        unused_metrics=[name for name in applicable_metrics(task) if name not in task.metrics],
        verdict_split=verdict_split,
        warnings=[
            *results.card.warnings,
            *_truncation_warnings(results),
            *_size_warnings(results, verdict_split),
            *caveats,
        ],
        worse_slices=_worse_slices(slices[verdict_split], slice_metric, overall),
    )


def _sections(task: Task) -> list[str]:
    """Return the titles of the sections that apply to the task. The first word of a title names its template."""
    start = ["Scores", "Learning"]
    end = ["Slices", "Mistakes", "Data", "Versions and parameters"]
    match task.problem_type:
        case "regression":
            return [*start, "Errors", *end]
        case "single_label_classification":
            return [*start, "Confusion", "Calibration", *end]
        case "multi_label_classification":
            return [*start, "Labels", "Calibration", *end]


def training_sizes_page(content: Mapping[str, Any], sentences: Sequence[str]) -> str:
    """Render the page of a learning curve from the content of curve.json, and the predictions in words."""
    return TEMPLATES.get_template("training_sizes.html.jinja").render(
        content,
        charts={"sizes": charts.training_sizes(content["points"], content["curve"], content["metric"])},
        meaning=METRICS[content["metric"]].meaning,
        script=charts.javascript(),
        sentences=sentences,
    )


def _size_warnings(results: Results, split: str) -> list[str]:
    """Return a warning if few examples of a split were scored."""
    count, noun = results.evaluation[split]["n"], results.task.noun
    if count >= MIN_EXAMPLES:
        return []
    if count < results.card.splits[split].rows:
        return [f"Only {count} {split} {noun} were scored, so the scores are uncertain. Raise predict.max_samples."]
    if results.split_type == "datetime":  # Folds do not work with it.
        return []
    return [
        f"{split} has only {count} {noun}, so its scores are uncertain. To score all labeled {noun} of train and "
        "validation, run python -m pipeline.folds."
    ]


def _worse_slices(slices: Sequence[Slice], name: str, overall: float) -> list[Slice]:
    """Return the slices in which a metric is clearly worse than its value on all rows."""
    scored = [part for part in slices if part.n >= MIN_ROWS and name in part.scores]
    return [part for part in scored if better_or_worse(part.intervals[name], overall, name) == "worse"]


def _charts(
    results: Results,
    splits: Sequence[str],
    epochs: pd.DataFrame,
    curve_names: Sequence[str],
    slices: Sequence[Slice],
) -> dict[str, dict[str, Any]]:
    """Return the specifications of the charts that apply to the task.

    Args:
        slices: The slices of the first split.
    """
    task, plots, verdict_split = results.task, results.plots, splits[0]
    kept_step = int(epochs["step"][results.training["kept_epoch"]])
    slice_metric = slice_metrics(task)[0]
    percentages = [name for name in curve_names if not METRICS[name].is_error]
    specifications = {
        "losses": charts.losses(results.history, kept_step, training_curves.LOSSES[task.problem_type]),
        "scores": charts.scores(epochs, percentages),
        "slices": charts.slice_chart(slices, slice_metric, results.diagnostics[verdict_split]["scores"][slice_metric]),
    }
    if headline := _headline(results, splits):
        specifications["headline"] = charts.headline(headline)
    if task.problem_type == "regression":
        specifications["predictions"] = charts.predictions(plots["residuals"], verdict_split)
    else:
        lowest = 0.5 if task.binary or task.problem_type == "multi_label_classification" else 0
        specifications["reliability"] = charts.reliability(plots["reliability"], splits, lowest)
    if task.binary:
        specifications["precision_recall"] = charts.precision_recall(plots["precision_recall"], splits)
        specifications["roc"] = charts.roc(plots["roc"], splits)
    return specifications


def _headline(results: Results, splits: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of the first chart: the scores of the model and of the baselines. Errors are left out."""
    rows = []
    constant = results.task.constant_baseline
    for split in splits:
        evaluation, intervals = results.evaluation[split], results.diagnostics[split]["intervals"]
        for name in results.task.metrics:
            if METRICS[name].is_error:
                continue
            models = {
                "this model": {"value": evaluation[name], **intervals[name]},
                "linear model": {"value": evaluation[f"linear_{name}"]},
                BASELINES[constant]: {"value": evaluation[f"{constant}_{name}"]},
            }
            # The titles have to fit on a phone: "mismatched" for the split, and "Pearson" for the metric.
            title = f"{split.removeprefix('validation_')} {METRICS[name].title.removesuffix(' correlation')}"
            rows += [{"score": title, "model": model, **values} for model, values in models.items()]
    return rows


def _truncation_warnings(results: Results) -> list[str]:
    """Return a warning for each split of which the model does not read a considerable part."""
    max_length = results.tokenization["max_length"]
    return [
        f"{split}: {counts['truncated']:,} of {counts['rows']:,} {results.task.noun} "
        f"({counts['truncated'] / counts['rows']:.1%}) are longer than {max_length} tokens, and the model does "
        "not read the rest. Raise tokenize.max_length."
        for split, counts in results.lengths.items()
        if counts["truncated"] > MAX_TRUNCATED * counts["rows"]
    ]


def _guessing(task: Task, prediction: Any) -> str:
    """Say what the baseline, which ignores the texts, always predicts."""
    if task.problem_type == "multi_label_classification":
        return "always predicting 0 or 1 for each label, whichever is more frequent in train,"
    if task.problem_type == "regression":
        return f"always predicting {format_number(prediction)}, the mean of the labels of train,"
    return f"always predicting “{task.labels[prediction]}”, the most frequent class of train,"


def _calibration_verdict(diagnostics: Mapping[str, Any], proportion_right: float) -> str | None:
    """Say how confidence and accuracy disagree, if they disagree more than chance explains.

    Returns:
        "overconfident", "underconfident", "uneven" if they only agree on average, or else None.
    """
    expected = diagnostics.get("if_calibrated")
    if expected is None:  # a regression
        return None
    if proportion_right < expected["accuracy_low"]:
        return "overconfident"
    if proportion_right > expected["accuracy_high"]:
        return "underconfident"
    return "uneven" if diagnostics["calibration_error"] > expected["calibration_error_high"] else None


def _confusion(predictions: Predictions, classes: int) -> dict[str, Any] | None:
    """Count how often each class is predicted for each label. Returns None if there is not one class per example.

    Returns:
        `counts`: Shape (classes, classes), with a row for each label. None with too many classes to show.
        `largest`: The largest counts of wrong predictions, as tuples of label, prediction and count.
        `wrong`: The number of wrong predictions.
    """
    if predictions.probability is None or predictions.labels.ndim > 1:
        return None
    pairs = Counter(zip(predictions.labels.tolist(), predictions.predicted.tolist(), strict=True))
    wrong = [(label, predicted, n) for (label, predicted), n in sorted(pairs.items()) if label != predicted]
    matrix = None
    if classes <= _MAX_CLASSES:
        matrix = [[pairs[label, predicted] for predicted in range(classes)] for label in range(classes)]
    return {
        "counts": matrix,
        "largest": sorted(wrong, key=lambda cell: -cell[2])[:_CONFUSIONS],
        "wrong": sum(n for _, _, n in wrong),
    }


def _mistake(results: Results, split: str, position: int) -> dict[str, Any]:
    """Return what the page shows about a mistake. `wrong_labels` is for several labels per example."""
    task, predictions, example = results.task, results.predictions[split], results.rows[split].iloc[position]
    predicted, label = predictions.predicted[position], predictions.labels[position]
    confidence: Any = None if predictions.probability is None else predictions.confidence[position]
    mistake = {"idx": predictions.idx[position], "label": label, "predicted": predicted, "confidence": confidence}
    mistake["texts"] = mistakes.pieces([example[column] for column in task.text_columns])
    if task.problem_type == "multi_label_classification":
        names = [f"“{name}” ({percent(sure)}% sure)" for name, sure in zip(task.labels, confidence, strict=True)]
        wrongly_predicted, missed = compress(names, predicted > label), compress(names, predicted < label)
        mistake["wrong_labels"] = {"wrongly predicted": list(wrongly_predicted), "missed": list(missed)}
    return mistake
