"""Stage report: how good the model is, why, and where it fails, as one page that needs no network."""

import base64
import csv
import hashlib
import itertools
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.cli import run
from pipeline.core.messages import UserError, log
from pipeline.core.output import write_text
from pipeline.core.paths import (
    METRICS,
    PREDICTIONS,
    PRETRAINED,
    RAW,
    SCORED,
    SOURCE,
    SPLITS,
    SWAPPED,
    TOKENIZED,
    require,
)
from pipeline.evaluation.metrics import Floats, Ints
from pipeline.evaluation.uncertainty import SCORES
from pipeline.reporting import data_card, learning_curves, mistakes, slices

if TYPE_CHECKING:
    import jinja2

_MISTAKES = 10  # shown of each class
_COMPARABLE = ("n", "majority_accuracy", "majority_f1")  # of other data where one of these is another


@dataclass(frozen=True)
class Pairs:
    """The pairs of a split: their sentences, and their labels, shape (n,)."""

    first: list[str]
    second: list[str]
    labels: Ints


@dataclass(frozen=True)
class Answers:
    """What the model says of the pairs of a split, each of shape (n,). probability: of class 1.

    swapped: the predictions for the sentences the other way round, where predict has made them.
    """

    predictions: Ints
    probability: Floats
    swapped: Ints | None

    @property
    def confidence(self) -> Floats:
        """The probability of the predicted class, shape (n,)."""
        return np.where(self.predictions == 1, self.probability, 1 - self.probability)


def report(raw: Path, tokenized: Path, pretrained: Path, predictions: Path, metrics: Path) -> None:
    """Write `metrics/report.html` from the data, the predictions and what the other stages wrote under `metrics`.

    metrics/baseline.json is an earlier evaluation.json, to compare with. The page has no date and no path in it: the
    same inputs give the same bytes. Raises UserError where an input is missing or does not fit the others.
    """
    from pipeline.core.tables import read_split
    from pipeline.reporting import charts

    tables = {split: read_split(raw, split, "download") for split in SPLITS}
    names = [name.replace("_", " ") for name in tables["test"].features["label"].names]
    rows = {split: table[:] for split, table in tables.items()}
    pairs = {split: Pairs(of["sentence1"], of["sentence2"], np.asarray(of["label"])) for split, of in rows.items()}
    answers = {split: _answers(predictions, split, pairs[split]) for split in SCORED}
    evaluation, intervals, diagnostics = (
        _read_json(metrics / f"{name}.json", "evaluate") for name in ("evaluation", "intervals", "diagnostics")
    )
    reliability, precision_recall, roc = (
        _read_csv(metrics / "plots" / f"{name}.csv", "evaluate") for name in ("reliability", "precision_recall", "roc")
    )
    training = _read_json(metrics / "train.json", "train")
    history = _read_csv(metrics / "plots" / "history.csv", "train")
    baseline = _baseline(metrics / "baseline.json", evaluation)
    majority = names[int(np.mean(pairs["test"].labels) >= 0.5)]
    epochs = learning_curves.epochs(history)
    kept_step = [int(row["step"]) for row in history if row["split"] == "validation"][training["kept_epoch"] - 1]
    sliced = {
        split: slices.slices(pairs[split].first, pairs[split].second, pairs[split].labels, of.predictions)
        for split, of in answers.items()
    }
    script = charts.javascript()
    template = _jinja().get_template("page.html.jinja")
    page = template.render(
        baseline=baseline,
        charts={
            "headline": charts.headline(_compared(evaluation, intervals, baseline)),
            "losses": charts.losses(history, kept_step),
            "scores": charts.scores(epochs),
            "reliability": charts.reliability(reliability),
            "precision_recall": charts.precision_recall(precision_recall),
            "roc": charts.roc(roc),
            "slices": charts.slices(sliced["test"], evaluation["test"]["accuracy"]),
        },
        confusion={
            split: np.bincount(2 * pairs[split].labels + of.predictions, minlength=4).reshape(2, 2).tolist()
            for split, of in answers.items()
        },
        diagnostics=diagnostics,
        duplicates={
            split: data_card.duplicates(of.first, of.second, of.labels.tolist()) for split, of in pairs.items()
        },
        epochs=epochs,
        evaluation=evaluation,
        few=slices.FEW,
        intervals=intervals,
        leakage=_leakage(pairs, answers),
        lengths=_read_json(tokenized / "lengths.json", "tokenize"),
        majority=majority,
        mistakes={predicted: _mistakes(pairs["test"], answers["test"], predicted) for predicted in (1, 0)},
        names=names,
        negations=slices.NEGATIONS,
        pins={
            "The corpus": _read_json(raw / SOURCE, "download"),
            "The pretrained checkpoint": _read_json(pretrained / SOURCE, "pretrained"),
            "The training run": training,
            "Where it was trained": _read_json(metrics / "environment.json", "train"),
            "This page": {name: version(name) for name in ("altair", "jinja2", "vl-convert-python")},
        },
        positive={split: float(of.labels.mean()) for split, of in pairs.items()},
        readings=learning_curves.read(epochs, training["epochs"], training["degenerate"]),
        rows={split: len(of.labels) for split, of in pairs.items()},
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        slices=sliced,
        titles=SCORES,
        training=training,
    )
    write_text(metrics / "report.html", page)
    log.info("%s is written; open it in a browser", metrics / "report.html")


def _read_json(path: Path, producer: str) -> dict[str, Any]:
    try:
        return dict(json.loads(require(path, producer).read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise UserError(f'{path} is not a JSON object; run "dvc repro -f {producer}"') from None


def _read_csv(path: Path, producer: str) -> list[dict[str, str]]:
    with require(path, producer).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _baseline(path: Path, evaluation: dict[str, Any]) -> dict[str, Any] | None:
    """The committed baseline; None where it is of other data, and its scores say nothing about these."""
    try:
        baseline = json.loads(path.read_text(encoding="utf-8"))
        same = all(baseline[split][key] == evaluation[split][key] for split in SCORED for key in _COMPARABLE)
        return baseline if same else None
    except (OSError, ValueError, TypeError, KeyError):
        raise UserError(f"{path} is no evaluation.json; copy there that of the run to compare with") from None


def _answers(predictions: Path, split: str, pairs: Pairs) -> Answers:
    from pipeline.core.tables import read_split

    table = read_split(predictions, split, "predict")[:]
    if not np.array_equal(table["label"], pairs.labels):
        raise UserError(f'{predictions / split}.parquet is not of the pairs in data/raw; run "dvc repro predict"')
    swapped = None
    if (predictions / f"{split}{SWAPPED}.parquet").exists():
        swapped = np.asarray(read_split(predictions, split + SWAPPED, "predict")[:]["prediction"])
    return Answers(np.asarray(table["prediction"]), np.asarray(table["probability"]), swapped)


def _compared(
    evaluation: dict[str, Any], intervals: dict[str, Any], baseline: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """The rows of the first chart: each score of the model, and what it is to be compared with."""
    found = []
    for split in reversed(SCORED):
        for name in SCORES:
            compared = {
                "this model": {"value": evaluation[split][name], **intervals[split][name]},
                "majority class": {"value": evaluation[split][f"majority_{name}"]},
            }
            if baseline:
                compared["committed baseline"] = {"value": baseline[split][name]}
            score = f"{split} {SCORES[name]}"
            found += [{"score": score, "model": model, **values} for model, values in compared.items()]
    return found


def _leakage(pairs: dict[str, Pairs], answers: dict[str, Answers]) -> list[dict[str, Any]]:
    """What of each split stands in an earlier one, and how right the model is where training showed it a sentence."""
    found = []
    for earlier, later in itertools.combinations(SPLITS, 2):
        known, own = pairs[earlier], pairs[later]
        leaked = data_card.leakage(own.first, own.second, known.first, known.second)
        row = {"of": later, "in": earlier, "pairs": int(leaked.pairs.sum()), "sentences": int(leaked.sentences.sum())}
        if earlier == "train":
            right = own.labels == answers[later].predictions
            for name, members in (("seen", leaked.sentences), ("unseen", ~leaked.sentences)):
                row[name] = float(right[members].mean()) if members.any() else None
        found.append(row)
    return found


def _mistakes(pairs: Pairs, answers: Answers, predicted: int) -> list[dict[str, Any]]:
    """The surest of the pairs that are wrongly called `predicted`."""
    found = []
    for at in mistakes.most_confident(pairs.labels, answers.predictions, answers.confidence, predicted, _MISTAKES):
        found.append(
            {
                "row": at,
                "confidence": float(answers.confidence[at]),
                "sentences": mistakes.differences(pairs.first[at], pairs.second[at]),
                "swapped": None if answers.swapped is None else int(answers.swapped[at]),
            }
        )
    return found


def _jinja() -> "jinja2.Environment":
    """The templates beside this file. What they insert is escaped, so that text from the data cannot become markup."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": _percent, "points": _points}
    return environment


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _points(difference: float) -> str:
    """A difference of shares, with its sign."""
    text = f"{100 * difference:+.1f}"
    return "±0.0" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def main() -> None:
    report(RAW, TOKENIZED, PRETRAINED, PREDICTIONS, METRICS)


if __name__ == "__main__":
    run(main)
