"""Train a linear model on the words and characters of the texts, to see what the transformer gains over it."""

import hashlib
import re
import shutil
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipeline.cli import run_stage

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, make_union
from threadpoolctl import threadpool_limits

from pipeline.core.messages import log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.parquet import read_split
from pipeline.core.paths import LINEAR, PROVENANCE, RAW, SOURCE, read_json
from pipeline.core.task import TASK, TRAIN, Task, read_task
from pipeline.evaluation.prediction_files import write_predictions
from pipeline.params import Params

_MAX_ROWS = 50_000  # of train; the features of a million rows would need tens of gigabytes
_MAX_CHARACTERS = 2_000  # of each text, for the same reason
_MAX_FEATURES = 100_000  # of words, and of characters
_MAX_WEIGHTS = 4_000_000  # features times classes; the solver needs 200 bytes for each
_CHUNK = 10_000  # rows that are predicted at once
_ABSENT = -20.0  # the logit of a class that train does not have: a probability of about 1e-9
_WORD = re.compile(r"\w+")


def baseline(raw: Path, out: Path, max_samples: int | None = None) -> None:
    """Train a linear model on train, and write its predictions for the other splits in the format of the stage predict.

    The features are TF-IDF values of words, pairs of words, and sequences of three to five characters. The model is a
    logistic regression, one for each label if an example can have several, or a ridge regression. The strength of the
    regularization is scikit-learn's default, and is not tuned.

    Args:
        max_samples: The number of examples to predict of each split, as in the stage predict. None means all.

    Raises:
        UserError: An input is missing or damaged.
    """
    task = read_task(raw, "download")
    train = _read_train(raw, task)
    vectorizer = _vectorizer(task).fit(pd.concat([train[name] for name in task.text_columns]))
    model = _fit(_model(task), _features(vectorizer, train, task), _labels(train))
    with atomic_output(out) as draft:
        draft.mkdir()
        for split in task.predicted_splits:
            rows = _shorten(read_split(raw, split, "download").slice(0, max_samples).to_pandas(), task)
            chunks = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
            logits = np.concatenate([_logits(model, _features(vectorizer, chunk, task), task) for chunk in chunks])
            labels = _labels(rows) if split in task.scored_splits else None
            write_predictions(draft, split, task, rows["idx"].to_numpy(), labels, logits)
        shutil.copy(raw / TASK, draft)
        provenance = {
            "checkpoint": {"checkpoint": "linear", "revision": version("scikit-learn")},
            "code": hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16],
            "data": read_json(raw / SOURCE, "download"),
            "environment": {},
            "parameters": {"seed": 0},
        }
        write_json(draft / PROVENANCE, provenance)


def _read_train(raw: Path, task: Task) -> pd.DataFrame:
    """Read the start of the texts and the labels of train, or of a random sample of its rows if there are too many."""
    table = read_split(raw, TRAIN, "download").select([*task.text_columns, "label"])
    if len(table) > _MAX_ROWS:
        log.info("the linear model learns from a random %s of %s %s", f"{_MAX_ROWS:,}", f"{len(table):,}", task.noun)
        sample = np.random.default_rng(0).choice(len(table), _MAX_ROWS, replace=False)
        if task.problem_type == "single_label_classification":
            # The solver needs at least two classes, so the first row of each class is added to the sample.
            _, first_rows = np.unique(table["label"].to_numpy(), return_index=True)
            sample = np.union1d(sample, first_rows)
        table = table.take(np.sort(sample))
    rows = table.to_pandas()
    if any((rows[name].str.len() > _MAX_CHARACTERS).any() for name in task.text_columns):
        log.info("the linear model reads only the first %s characters of each text", f"{_MAX_CHARACTERS:,}")
    return _shorten(rows, task)


def _shorten(rows: pd.DataFrame, task: Task) -> pd.DataFrame:
    """Return the rows with the start of each text only."""
    return rows.assign(**{name: rows[name].str[:_MAX_CHARACTERS] for name in task.text_columns})


def _vectorizer(task: Task) -> FeatureUnion:
    parts = 4 if task.pairs else 1  # see `_features`
    settings = {
        "max_features": min(_MAX_FEATURES, _MAX_WEIGHTS // (task.outputs * parts)),
        "sublinear_tf": True,
        "dtype": np.float32,
    }
    return make_union(
        # Single letters and punctuation are words too, so that each text has some.
        TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), **settings),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), **settings),
    )


def _model(task: Task) -> Any:
    if task.problem_type == "regression":
        return Ridge()
    model = LogisticRegression(max_iter=1000)
    return model if task.problem_type == "single_label_classification" else OneVsRestClassifier(model)


def _fit(model: Any, features: csr_matrix, labels: NDArray[Any]) -> Any:
    """Fit the model. The same rows give the same model on any number of cores."""
    # With several threads, the last digits of sums depend on their number.
    with threadpool_limits(1), warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(features, labels)
    if any(issubclass(warning.category, ConvergenceWarning) for warning in recorded):
        log.warning("the linear model has not converged, so its scores may be too low")
    return model


def _labels(rows: pd.DataFrame) -> NDArray[Any]:
    return np.array(rows["label"].tolist())


def _features(vectorizer: FeatureUnion, rows: pd.DataFrame, task: Task) -> csr_matrix:
    """Return the features of the rows.

    For pairs, they are the features of both texts, their absolute difference, their product and its sum, and the
    overlap of the words.
    """
    texts = [rows[name] for name in task.text_columns]
    if not task.pairs:
        return vectorizer.transform(texts[0])
    first, second = map(vectorizer.transform, texts)
    product = first.multiply(second)
    # A single block in float64 would turn the whole matrix into float64.
    similarity = csr_matrix(product.sum(axis=1), dtype=np.float32)
    overlap = csr_matrix([_overlap(*pair) for pair in zip(*texts, strict=True)], dtype=np.float32)
    return hstack([first, second, abs(first - second), product, similarity, overlap], format="csr")


def _overlap(first: str, second: str) -> list[float]:
    """Return the common words of two texts as a proportion of the words of both, of the first, and of the second."""
    first_words, second_words = (set(_WORD.findall(text.lower())) for text in (first, second))
    common = len(first_words & second_words)
    return [common / max(len(words), 1) for words in (first_words | second_words, first_words, second_words)]


def _logits(model: Any, features: csr_matrix, task: Task) -> NDArray[np.float64]:
    """Return the logits, shape (rows, outputs)."""
    rows = features.shape[0]
    compute = model.predict if task.problem_type == "regression" else model.decision_function
    scores: NDArray[np.float64] = compute(features)
    if task.problem_type != "single_label_classification":
        scores = scores.reshape(rows, task.outputs)
        if task.problem_type == "multi_label_classification":
            # If no row of train has a label, or every row has it, OneVsRestClassifier returns no logit.
            is_constant = [not hasattr(estimator, "coef_") for estimator in model.estimators_]
            has_label = model.predict(features).reshape(rows, task.outputs)[:, is_constant]
            scores[:, is_constant] = np.where(has_label, -_ABSENT, _ABSENT)
        return scores
    if len(model.classes_) == 2:
        scores = np.column_stack([-scores / 2, scores / 2])
    logits = np.full((rows, task.outputs), _ABSENT)
    logits[:, model.classes_] = scores
    return logits


def main(params: Params) -> None:
    baseline(RAW, LINEAR, params.predict.max_samples)


if __name__ == "__main__":
    run_stage("baseline", main)
