"""The report: one HTML page that needs no network."""

import base64
import hashlib
import itertools
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.percent import percent, points
from pipeline.core.task import Task
from pipeline.evaluation.metrics import METRICS, baseline
from pipeline.evaluation.predictions import Predictions
from pipeline.reporting import data_card, learning_curves, mistakes, slices
from pipeline.reporting.results import Pairs, Results

if TYPE_CHECKING:
    import jinja2

_MISTAKES = 10  # shown of each class


def page(results: Results) -> str:
    """The page as HTML. It has no date and no path in it: the same results give the same text."""
    from pipeline.reporting import charts

    task, pairs, predictions, plots = results.task, results.pairs, results.predictions, results.plots
    evaluation, training = results.metrics["evaluation"], results.metrics["train"]
    run, environment = results.provenance["run"], results.metrics["environment"]
    names = [name.replace("_", " ") for name in task.labels]
    labels = {split: np.bincount(of.labels, minlength=len(names)) for split, of in pairs.items()}
    epochs = learning_curves.epochs(plots["history"])
    steps = [int(row["step"]) for row in plots["history"] if row["split"] == "validation"]
    scored = {split: pairs[split].first_of(len(of.labels)) for split, of in predictions.items()}
    sliced = {
        split: slices.slices(task.metrics, scored[split].first, scored[split].second, of.labels, of.predicted)
        for split, of in predictions.items()
    }
    script = charts.javascript()
    template = _jinja().get_template("page.html.jinja")
    return template.render(
        baseline=results.baseline,
        charts={
            "headline": charts.headline(_headline(results)),
            "losses": charts.losses(plots["history"], steps[training["kept_epoch"] - 1]),
            "scores": charts.scores(epochs),
            "reliability": charts.reliability(plots["reliability"]),
            "precision_recall": charts.precision_recall(plots["precision_recall"]),
            "roc": charts.roc(plots["roc"]),
            "slices": charts.slices(sliced["test"], evaluation["test"]["accuracy"]),
        },
        confusion={
            split: np.bincount(2 * of.labels + of.predicted, minlength=4).reshape(2, 2).tolist()
            for split, of in predictions.items()
        },
        diagnostics=results.metrics["diagnostics"],
        duplicates={
            split: data_card.duplicates(of.first, of.second, of.labels.tolist()) for split, of in pairs.items()
        },
        epochs=epochs,
        evaluation=evaluation,
        evaluation_md5=results.evaluation_md5,
        few=slices.FEW,
        intervals=results.metrics["intervals"],
        label_shifts={split: data_card.label_shift(labels["train"], labels[split]) for split in task.scored},
        label_shares={split: (counts / counts.sum()).tolist() for split, counts in labels.items()},
        leakage=_leakage(pairs, predictions),
        lengths=results.lengths,
        majority=names[baseline(task.problem_type, predictions["test"].labels)[0]],
        mistakes={predicted: _mistakes(pairs["test"], predictions["test"], predicted) for predicted in (1, 0)},
        names=names,
        negations=slices.NEGATIONS,
        readings=learning_curves.read(epochs, training["epochs"], training["degenerate"]),
        rows={split: len(of.labels) for split, of in pairs.items()},
        run=run,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        slices=sliced,
        titles=_titles(results.task),
        training=training,
        # `run` holds the environment too, and `precision` belongs to both.
        parameters={name: value for name, value in run.items() if name == "precision" or name not in environment},
        versions={
            "The corpus": results.provenance["data"],
            "The pretrained checkpoint": results.provenance["checkpoint"],
            "The training run": training,
            "Where it was trained": environment,
            "This page": {name: version(name) for name in ("altair", "jinja2", "vl-convert-python")},
        },
    )


def _titles(task: Task) -> dict[str, str]:
    return {name: METRICS[name].title for name in task.metrics}


def _headline(results: Results) -> list[dict[str, Any]]:
    """The rows of the first chart: each score of the model, and the scores to compare it with."""
    rows = []
    for split in reversed(results.task.scored):
        scores, intervals = (results.metrics[name][split] for name in ("evaluation", "intervals"))
        for name, title in _titles(results.task).items():
            compared = {
                "this model": {"value": scores[name], **intervals[name]},
                "majority class": {"value": scores[f"majority_{name}"]},
            }
            if results.baseline:
                compared["committed baseline"] = {"value": results.baseline[split][name]}
            rows += [{"score": f"{split} {title}", "model": model, **values} for model, values in compared.items()]
    return rows


def _leakage(pairs: dict[str, Pairs], predictions: dict[str, Predictions]) -> list[dict[str, Any]]:
    """How much of each split is in an earlier one, and the accuracy on pairs with and without a sentence from train."""
    rows = []
    for earlier, later in itertools.combinations(pairs, 2):
        known, own = pairs[earlier], pairs[later]
        leaked = data_card.leakage(own.first, own.second, known.first, known.second)
        row = {"of": later, "in": earlier, "pairs": int(leaked.pairs.sum()), "sentences": int(leaked.sentences.sum())}
        if earlier == "train":
            of = predictions[later]
            correct, sentences = of.labels == of.predicted, leaked.sentences[: len(of.labels)]
            for name, members in (("seen", sentences), ("unseen", ~sentences)):
                row[name] = float(correct[members].mean()) if members.any() else None
        rows.append(row)
    return rows


def _mistakes(pairs: Pairs, of: Predictions, predicted: int) -> list[dict[str, Any]]:
    """The most confident mistakes among the pairs predicted as class `predicted`."""
    return [
        {
            "row": at,
            "confidence": float(of.confidence[at]),
            "sentences": mistakes.differences(pairs.first[at], pairs.second[at]),
            "swapped": None if of.swapped is None else int(of.swapped[at]),
        }
        for at in mistakes.most_confident(of.labels, of.predicted, of.confidence, predicted, _MISTAKES)
    ]


def _jinja() -> "jinja2.Environment":
    """The templates beside this file. Inserted text is escaped: text from the data cannot become markup."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "points": _typeset_points, "p_value": _typeset_p}
    return environment


def _typeset_points(difference: float) -> str:
    return points(difference).replace("+0.0", "±0.0").replace("-", "\N{MINUS SIGN}")


def _typeset_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
