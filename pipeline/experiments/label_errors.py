"""Rank labeled rows by how unlikely models that have not seen them find their labels."""

from functools import partial

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer

from pipeline.core.task import Task
from pipeline.evaluation.metrics import Ints, Values
from pipeline.evaluation.predictions import Predictions, label_probability
from pipeline.modeling.outputs import losses
from pipeline.sources.corrections import NO_LABELS, SEPARATOR


def rank(task: Task, predictions: Predictions) -> pd.DataFrame:
    """Return the rows of suspects.csv: the most suspicious 10% of the labeled rows (at least 50, at most 1,000).

    A row is suspicious if the loss of its label is high for a model that was not trained on it (Chong, Hong and Manning
    2022, https://aclanthology.org/2022.emnlp-main.618). For a regression, the loss is the squared error. The columns
    that start with "nearest_" are those of the most similar row with another label.
    """
    texts, labels = predictions.rows[task.text_columns], predictions.labels
    loss = losses(task.problem_type, predictions.logits, labels).reshape(len(texts), -1).mean(axis=1)
    suspects = np.argsort(-loss, kind="stable")[: np.clip(len(texts) // 10, 50, 1000)]
    # Two numbers of a regression are different labels if they are more than half a standard deviation apart.
    tolerance = labels.std() / 2 if task.is_regression else 0
    nearest = _nearest_with_another_label(texts, labels.reshape(len(texts), -1), tolerance, suspects)
    format_label = partial(task.format_label, separator=SEPARATOR, if_empty=NO_LABELS)
    columns = {
        "correct_label": "",
        "label": [*map(format_label, labels[suspects])],
        "prediction": [*map(format_label, predictions.predicted[suspects])],
        "loss": loss[suspects].round(4),
        "idx": predictions.idx[suspects],
        "nearest_label": [*map(format_label, labels[nearest])],
    }
    if predictions.probability is not None:
        columns["probability"] = label_probability(predictions.probability, labels)[suspects].round(4)
    for name in texts:
        columns |= {name: texts[name].to_numpy()[suspects], f"nearest_{name}": texts[name].to_numpy()[nearest]}
    return pd.DataFrame(columns)


def _nearest_with_another_label(texts: pd.DataFrame, labels: Values, tolerance: float, suspects: Ints) -> list[int]:
    """Return the position of the most similar row with another label for each suspect. `labels` are of shape (n, m)."""
    # The similarity is the cosine of TF-IDF values of sequences of three characters. Longer texts would cost memory.
    joined = [" ".join(text[:300] for text in row) for row in texts.itertuples(index=False)]
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), sublinear_tf=True, dtype=np.float32)
    features = vectorizer.fit_transform(joined)
    nearest = []
    for suspect in suspects:  # one at a time, because a matrix of all similarities would not fit into memory
        similarity = features @ features[suspect].toarray()[0]
        similarity[(np.abs(labels - labels[suspect]) <= tolerance).all(axis=1)] = -1
        nearest.append(int(similarity.argmax()))
    return nearest
