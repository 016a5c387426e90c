"""Rank labeled rows by how little a model that has not seen them believes their label."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from pipeline.core.task import Task
from pipeline.core.text import listing
from pipeline.evaluation.metrics import Ints, Values, losses
from pipeline.evaluation.predictions import Predictions
from pipeline.sources.duplicates import hash_rows

_LEAST, _MOST = 50, 1000  # rows to rank
_PROPORTION = 0.1  # of all rows, within these bounds
_FEATURES = 100_000
_BATCH = 20  # rows whose similarity to all other rows is computed at once
_DIFFERENT = 0.5  # standard deviations between two labels of a regression that count as different
NO_LABELS = "[]"


def rank(task: Task, rows: pd.DataFrame, predictions: Predictions) -> pd.DataFrame:
    """Return the most suspicious tenth of the rows, but 50 to 1,000 of them, the most suspicious one first.

    A row is suspicious if the loss of its label is high for a model that was not trained on it (Chong, Hong and Manning
    2022, https://aclanthology.org/2022.findings-emnlp.330). For a regression, the loss is the squared error.

    Args:
        rows: `SourceRows.labeled`.
        predictions: The out-of-fold predictions for the same rows.

    Returns:
        The columns are "label", "prediction", "probability" (of the label; not for a regression), "loss", the text
        columns, "place", "idx", "contradicts" (the places of rows with the same texts and another label), and for the
        most similar row with another label "nearest_label", "nearest_place" and "nearest_" with the name of each text
        column.
    """
    loss = losses(task.problem_type, predictions.logits, predictions.labels).reshape(len(rows), -1).mean(axis=1)
    count = min(max(round(_PROPORTION * len(rows)), _LEAST), _MOST)
    worst = np.argsort(-loss, kind="stable")[:count]
    nearest = _nearest_with_another_label(rows[task.text_columns], predictions.labels, worst)
    labels = np.array([label_name(task, label) for label in predictions.labels], dtype=object)
    columns = {"label": labels[worst], "prediction": [label_name(task, predictions.predicted[row]) for row in worst]}
    if predictions.probability is not None:
        columns["probability"] = _label_probability(predictions)[worst].round(4)
    columns |= {"loss": loss[worst].round(4)}
    columns |= {name: rows[name].to_numpy()[worst] for name in task.text_columns}
    columns |= {"place": rows["place"].to_numpy()[worst], "idx": predictions.idx[worst]}
    columns |= {"contradicts": _contradictions(rows, task)[worst]}
    columns |= {"nearest_label": labels[nearest], "nearest_place": rows["place"].to_numpy()[nearest]}
    columns |= {f"nearest_{name}": rows[name].to_numpy()[nearest] for name in task.text_columns}
    return pd.DataFrame(columns)


def label_name(task: Task, label: Any) -> str:
    """Return the name of a class, the names of several labels such as "a|b", or a number."""
    if task.problem_type == "regression":
        return f"{label:.6g}"
    if task.problem_type == "single_label_classification":
        return task.labels[label]
    return "|".join(name for name, present in zip(task.labels, label, strict=True) if present) or NO_LABELS


def _label_probability(predictions: Predictions) -> Values:
    """Return the probability of each row's label, or of its exact combination of labels, shape (n,)."""
    probability, labels = predictions.probability, predictions.labels
    assert probability is not None
    if labels.ndim == 2:
        return np.where(labels == 1, probability, 1 - probability).prod(axis=1)
    return np.take_along_axis(probability, labels[:, None], axis=1)[:, 0]


def _contradictions(rows: pd.DataFrame, task: Task) -> NDArray[Any]:
    """Return the places of the rows with the same texts and another label, or an empty text. Shape (n,)."""
    hashes = hash_rows(rows, task.text_columns).set_axis(range(len(rows)))
    places = rows["place"].to_numpy()
    contradictions = np.full(len(rows), "", dtype=object)
    for _, labels in hashes[hashes.duplicated("row", keep=False)].groupby("row")["label"]:
        for row, label in labels.items():
            contradictions[row] = listing(places[labels.index[labels != label]], 3)
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
        similarity[_same_label(labels, batch)] = -1
        nearest.append(similarity.argmax(axis=1))
    return np.concatenate(nearest)


def _same_label(labels: Values, rows: Ints) -> NDArray[np.bool_]:
    """Return which labels count as the same as those of some rows, shape (rows, n)."""
    if labels.ndim == 2:
        return (labels[rows][:, None] == labels).all(axis=2)
    if np.issubdtype(labels.dtype, np.integer):
        return labels[rows][:, None] == labels
    return np.abs(labels[rows][:, None] - labels) < _DIFFERENT * labels.std()
