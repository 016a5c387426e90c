"""Rank labeled rows by how unlikely a model that has not seen them finds their label."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from pipeline.core.task import Task
from pipeline.evaluation.metrics import Ints, Values, losses
from pipeline.evaluation.predictions import Predictions, format_label, label_probability
from pipeline.sources.corrections import NO_LABELS
from pipeline.sources.duplicates import hash_rows

_PROPORTION = 0.1  # of all rows
_MIN_ROWS, _MAX_ROWS = 50, 1000
_FEATURES = 100_000
_BATCH = 20  # rows whose similarity to all other rows is computed at once
# Labels differ if they are at least this far apart: whole numbers for classes, standard deviations for a regression.
_MIN_DIFFERENCE = 0.5
_MAX_PLACES = 3  # of contradictory rows that are listed


def rank(task: Task, rows: pd.DataFrame, predictions: Predictions) -> pd.DataFrame:
    """Return the most suspicious 10% of the rows (at least 50, at most 1,000), the most suspicious one first.

    A row is suspicious if the loss of its label is high for a model that was not trained on it (Chong, Hong and Manning
    2022, https://aclanthology.org/2022.emnlp-main.618). For a regression, the loss is the squared error.

    Args:
        rows: `sources.folds.labeled_rows`. The index has the place of each row.
        predictions: The out-of-fold predictions for the same rows.

    Returns:
        The columns are "label", "prediction", "probability" (of the label; not for a regression), "loss", the text
        columns, "place", "idx", "contradicts" (the places of up to three rows with the same texts and another label),
        and for the most similar row with another label "nearest_label", "nearest_place" and "nearest_" with the name of
        each text column.
    """
    loss = losses(task.problem_type, predictions.logits, predictions.labels).reshape(len(rows), -1).mean(axis=1)
    count = min(max(round(_PROPORTION * len(rows)), _MIN_ROWS), _MAX_ROWS)
    suspects = np.argsort(-loss, kind="stable")[:count]
    if task.problem_type == "regression":
        encoded = predictions.labels / predictions.labels.std()
    else:  # a number for each class, or for each combination of labels
        _, encoded = np.unique(predictions.labels, axis=0, return_inverse=True)
    nearest = _nearest_with_another_label(rows[task.text_columns], encoded, suspects)
    labels = np.array([label_name(task, label) for label in predictions.labels], dtype=object)
    columns = {
        "label": labels[suspects],
        "prediction": [_prediction_name(task, predictions.predicted[row]) for row in suspects],
    }
    if predictions.probability is not None:
        columns["probability"] = label_probability(predictions.probability, predictions.labels)[suspects].round(4)
    columns |= {"loss": [float(f"{value:.4g}") for value in loss[suspects]]}
    columns |= {name: rows[name].to_numpy()[suspects] for name in task.text_columns}
    columns |= {"place": rows.index[suspects], "idx": predictions.idx[suspects]}
    columns |= {"contradicts": _contradictions(rows, task, encoded, suspects)}
    columns |= {"nearest_label": labels[nearest], "nearest_place": rows.index[nearest]}
    columns |= {f"nearest_{name}": rows[name].to_numpy()[nearest] for name in task.text_columns}
    return pd.DataFrame(columns)


def label_name(task: Task, label: Any) -> str:
    """Return the name of a class, the names of several labels such as "a|b", or a number with all its digits."""
    if task.problem_type == "regression":
        return repr(float(label)).removesuffix(".0")
    return _prediction_name(task, label)


def _prediction_name(task: Task, prediction: Any) -> str:
    """Return the name of a class, the names of several labels such as "a|b", or a number with six digits."""
    return format_label(task, prediction, separator="|", if_empty=NO_LABELS)


def _contradictions(rows: pd.DataFrame, task: Task, labels: Values, suspects: Ints) -> list[str]:
    """Return the places of the rows with the same texts and another label for each suspect. Most have none."""
    hashes = hash_rows(rows, task.text_columns)["row"].to_numpy()
    contradictions = []
    for suspect in suspects:
        contradictory = (hashes == hashes[suspect]) & ~_same_label(labels, labels[[suspect]])[0]
        contradictions.append(", ".join(rows.index[contradictory][:_MAX_PLACES]))
    return contradictions


def _nearest_with_another_label(texts: pd.DataFrame, labels: Values, suspects: Ints) -> Ints:
    """Return the position of the most similar row with another label for each suspect, shape (suspects,).

    The similarity is the cosine of TF-IDF values of sequences of three to five characters.
    """
    joined = [" ".join(row) for row in texts.itertuples(index=False)]
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, max_features=_FEATURES)
    features = vectorizer.fit_transform(joined)
    nearest = []
    for start in range(0, len(suspects), _BATCH):
        batch = suspects[start : start + _BATCH]
        similarity = (features[batch] @ features.T).toarray()
        similarity[_same_label(labels, labels[batch])] = -1
        nearest.append(similarity.argmax(axis=1))
    return np.concatenate(nearest)


def _same_label(labels: Values, references: Values) -> NDArray[np.bool_]:
    """Return which labels count as the same as the references, shape (references, labels)."""
    is_same: NDArray[np.bool_] = np.abs(references[:, None] - labels) < _MIN_DIFFERENCE
    return is_same
