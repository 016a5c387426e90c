"""Train a linear model on the words and characters of the texts, to see what the transformer gains over it."""

from pipeline.cli import as_command, parse_arguments
from pipeline.params import keys_of

if __name__ == "__main__":  # --help must not wait for the imports below.
    parse_arguments(keys_of())

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, make_union

from pipeline.core.messages import log
from pipeline.core.output import atomic_output
from pipeline.core.packages import REQUIREMENTS, require_locked
from pipeline.core.parquet import read_split
from pipeline.core.paths import RAW
from pipeline.core.task import TASK, TRAIN, Task, read_task
from pipeline.evaluation.prediction_files import LINEAR, write_predictions

_MOST_ROWS = 50_000  # of train; the features of a million rows would need tens of gigabytes
_CHUNK = 10_000  # rows that are predicted at once
_CERTAIN = 20.0  # a logit for classes that train does not have: a probability of about 1e-9
_WORD = re.compile(r"\w+")


def baseline(raw: Path, out: Path) -> None:
    """Write the predictions of a linear model for all splits but train, in the form of the predict stage.

    The features are TF-IDF values of words, pairs of words, and three to five characters. The model is a logistic
    regression, one for each label if an example can have several, or a ridge regression. All of its settings are the
    defaults of scikit-learn.
    """
    task = read_task(raw, "download")
    train = read_split(raw, TRAIN, "download").to_pandas()
    if len(train) > _MOST_ROWS:
        log.warning("the linear baseline learns from %s of the %s rows of train", f"{_MOST_ROWS:,}", f"{len(train):,}")
        train = train.sample(_MOST_ROWS, random_state=0)
    vectorizer = _vectorizer().fit(pd.concat([train[name] for name in task.text_columns]))
    model = _model(task).fit(_features(vectorizer, train, task), _labels(train))
    with atomic_output(out) as draft:
        draft.mkdir()
        for split in task.predicted_splits:
            rows = read_split(raw, split, "download").to_pandas()
            starts = range(0, len(rows), _CHUNK)
            logits = np.concatenate(
                [_logits(model, vectorizer, rows[start : start + _CHUNK], task) for start in starts]
            )
            labels = _labels(rows) if "label" in rows else None
            write_predictions(draft, split, task, rows["idx"].to_numpy(), labels, logits)
        shutil.copy(raw / TASK, draft)


def _vectorizer() -> FeatureUnion:
    return make_union(
        TfidfVectorizer(ngram_range=(1, 2), min_df=2, max_features=100_000, sublinear_tf=True, dtype=np.float32),
        TfidfVectorizer(
            analyzer="char_wb", ngram_range=(3, 5), min_df=2, max_features=100_000, sublinear_tf=True, dtype=np.float32
        ),
    )


def _model(task: Task) -> Any:
    if task.problem_type == "regression":
        return Ridge()
    model = LogisticRegression(max_iter=1000)
    return model if task.problem_type == "single_label_classification" else OneVsRestClassifier(model)


def _labels(rows: pd.DataFrame) -> NDArray[Any]:
    return np.array(rows["label"].tolist())


def _features(vectorizer: FeatureUnion, rows: pd.DataFrame, task: Task) -> csr_matrix:
    """Return the features of the rows. For pairs: those of each text, their difference, product and overlap."""
    first, *others = (vectorizer.transform(rows[name]) for name in task.text_columns)
    if not others:
        return first
    second = others[0]
    product = first.multiply(second)
    similarity = csr_matrix(product.sum(axis=1))
    overlap = csr_matrix([_overlap(*texts) for texts in zip(*(rows[name] for name in task.text_columns), strict=True)])
    return hstack([first, second, abs(first - second), product, similarity, overlap]).tocsr()


def _overlap(first: str, second: str) -> list[float]:
    """Return the common words of two texts as a proportion of the words of both, of the first, and of the second."""
    a, b = ({word for word in _WORD.findall(text.lower())} for text in (first, second))
    common = len(a & b)
    return [common / max(len(a | b), 1), common / max(len(a), 1), common / max(len(b), 1)]


def _logits(model: Any, vectorizer: FeatureUnion, rows: pd.DataFrame, task: Task) -> NDArray[np.float64]:
    """Return the logits, shape (rows, outputs)."""
    features = _features(vectorizer, rows, task)
    if task.problem_type == "regression":
        return model.predict(features)[:, None]
    scores = model.decision_function(features)
    if task.problem_type == "multi_label_classification":
        return scores
    if len(model.classes_) == 2:
        scores = np.column_stack([-scores / 2, scores / 2])
    logits = np.full((len(rows), task.outputs), -_CERTAIN)
    logits[:, model.classes_] = scores
    return logits


def main() -> None:
    require_locked()
    require_locked(REQUIREMENTS, ["scikit-learn"])
    baseline(RAW, LINEAR)


if __name__ == "__main__":
    with as_command():
        main()
