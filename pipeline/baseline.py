"""Train simple models on the texts, to see what fine-tuning gains over them."""

import re
import shutil
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from datasets import Dataset
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline, make_union
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from pipeline.cli import run_stage
from pipeline.core.messages import log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.parquet import read_rows
from pipeline.core.paths import BASELINES, METRICS_DIR, PRETRAINED, PROVENANCE, RAW, SOURCE, read_json
from pipeline.core.task import TASK, TRAIN, Task, read_task
from pipeline.evaluation.predictions import write_predictions
from pipeline.modeling.device import Device, set_up_device
from pipeline.modeling.environment import environment
from pipeline.modeling.loading import load_encoder
from pipeline.modeling.scoring import predict_logits, scoring_trainer
from pipeline.modeling.tokenization import encode, load_tokenizer
from pipeline.params import Params

Model = Callable[[pa.Table], NDArray[np.float64]]  # returns the logits of rows of data/raw, shape (rows, outputs)

_MAX_ROWS = 50_000  # of train; the features of a million rows would need tens of gigabytes
_MAX_CHARACTERS = 2_000  # of each text, for the same reason
_MAX_ENCODED_ROWS = 20_000  # of train; each one is a forward pass of the base model
_MAX_FEATURES = 100_000  # of words, and of characters
_MAX_WEIGHTS = 4_000_000  # features times classes; the solver needs 200 bytes for each
_CHUNK = 10_000  # rows that are predicted at once
# The inverse strength of the regularization, as in scikit-learn, whose default is 1. The hundreds of features of the
# frozen model are standardized, so it needs more: with 0.01, the accuracy of MiniLM rises by 2.9 to 7.6 points on SST-2
# (280 rows), RTE and MRPC, and by 0.3 on CoLA.
_LINEAR_C, _FROZEN_C = 1.0, 0.01
_ABSENT = -20.0  # the logit of a class that train does not have: a probability of about 1e-9
_WORD = re.compile(r"\w+")


class FrozenEncoder:
    """A base model that turns a text into the mean of its last hidden states over the tokens of the text."""

    def __init__(self, directory: Path, max_length: int, batch_size: int, device: Device) -> None:
        self.provenance = {"checkpoint": read_json(directory / SOURCE), "environment": environment(device)}
        self._tokenizer = load_tokenizer(directory)
        self._max_length = min(max_length, self._tokenizer.model_max_length)
        torch.manual_seed(0)  # for weights that the base model lacks
        model = load_encoder(directory)
        model.register_forward_hook(_mean_over_tokens, with_kwargs=True)  # Its result replaces the output.
        self._trainer = scoring_trainer(model, self._tokenizer, device, batch_size)

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Return an array of shape (texts, hidden size)."""
        # Some tokenizers, such as GPT-2's, make no token from an empty text.
        examples = {"text": [text or "\n" for text in texts]}
        encoded = encode(examples, self._tokenizer, ["text"], self._max_length)
        return predict_logits(self._trainer, Dataset.from_dict(encoded))


def _mean_over_tokens(model: Any, args: Any, inputs: dict[str, torch.Tensor], outputs: Any) -> dict[str, torch.Tensor]:
    mask = inputs["attention_mask"].unsqueeze(-1)
    return {"logits": (outputs.last_hidden_state.float() * mask).sum(1) / mask.sum(1).clamp(min=1)}


def baseline(raw: Path, out: Path, max_samples: int | None = None, encoder: FrozenEncoder | None = None) -> None:
    """Train simple models on train, and write their predictions for the scored splits as the stage predict does.

    Both are a logistic regression, one for each label if an example can have several, or a ridge regression, and are
    not tuned. The features of the linear model are TF-IDF values of words, pairs of words, and sequences of three to
    five characters. Those of the frozen model are the outputs of the base model, which is not fine-tuned.

    Args:
        max_samples: The number of examples to predict of each split, as in the stage predict. None means all.
        encoder: The base model. None means only the linear model.
    """
    task, train = read_task(raw), read_rows(raw, TRAIN)
    checkpoint = {"checkpoint": "linear", "revision": version("scikit-learn")}
    models = {"linear": (_linear_model(train, task), {"checkpoint": checkpoint, "environment": {}})}
    if encoder is not None:
        models["frozen"] = _frozen_model(train, task, encoder), encoder.provenance
    with atomic_output(out) as draft:
        for name, (logits, provenance) in models.items():
            (draft / name).mkdir(parents=True)
            for split in task.scored_splits:
                examples = read_rows(raw, split).slice(0, max_samples)
                parts = [logits(examples.slice(start, _CHUNK)) for start in range(0, len(examples), _CHUNK)]
                write_predictions(draft / name / f"{split}.parquet", task, examples, np.concatenate(parts))
            shutil.copy(raw / TASK, draft / name)
            write_json(draft / name / PROVENANCE, provenance | {"data": read_json(raw / SOURCE)})


def _linear_model(train: pa.Table, task: Task) -> Model:
    """Train a linear model on the words and characters of the start of each text."""
    train = _sample(train, task, _MAX_ROWS, "linear")
    texts = pd.concat([_texts(train, name) for name in task.text_columns])
    if texts.str.len().max() == _MAX_CHARACTERS:
        log.info("the linear model reads only the first %s characters of each text", f"{_MAX_CHARACTERS:,}")
    vectorizer = _vectorizer(task).fit(texts)

    def features(rows: pa.Table) -> csr_matrix:
        texts = [_texts(rows, name) for name in task.text_columns]
        vectors = [vectorizer.transform(column) for column in texts]
        return _pair_features(vectors, texts) if task.has_pairs else vectors[0]

    return _train(features, train, task, _LINEAR_C)


def _frozen_model(train: pa.Table, task: Task, encoder: FrozenEncoder) -> Model:
    """Train a linear model on the outputs of the base model."""

    def features(rows: pa.Table) -> NDArray[np.float32]:
        parts = [encoder.encode(rows[name].to_pylist()) for name in task.text_columns]
        if task.has_pairs:
            parts += [abs(parts[0] - parts[1]), parts[0] * parts[1]]
        return np.hstack(parts)

    return _train(features, _sample(train, task, _MAX_ENCODED_ROWS, "frozen"), task, _FROZEN_C, StandardScaler())


def _train(features: Callable[[pa.Table], Any], rows: pa.Table, task: Task, c: float, *steps: Any) -> Model:
    """Fit a linear model to the features of rows after other steps, and return what computes its logits."""
    estimator = Ridge(alpha=1 / c) if task.is_regression else LogisticRegression(C=c, max_iter=1000)
    model = make_pipeline(*steps, OneVsRestClassifier(estimator) if task.is_multi_label else estimator)
    vectors, labels = features(rows), np.array(rows["label"].to_pylist())
    # With several threads, the last digits of sums depend on their number. The warnings are about labels that all rows
    # or no rows have, and about a fit that has not converged yet, which is good enough.
    with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
        model.fit(vectors, labels)
    return lambda rows: _logits(model, features(rows), task)


def _sample(train: pa.Table, task: Task, n: int, model: str) -> pa.Table:
    """Return train, or a random sample of n of its rows if it has more."""
    if len(train) <= n:
        return train
    log.info("the %s model learns from a random %s of %s %s", model, f"{n:,}", f"{len(train):,}", task.noun)
    sample = np.random.default_rng(0).choice(len(train), n, replace=False)
    if task.is_single_label:
        # The solver needs at least two classes, so the first row of each class is added to the sample.
        _, first_rows = np.unique(train["label"].to_numpy(), return_index=True)
        sample = np.union1d(sample, first_rows)
    return train.take(np.sort(sample))


def _texts(rows: pa.Table, column: str) -> "pd.Series[str]":
    return rows[column].to_pandas().str[:_MAX_CHARACTERS]


def _vectorizer(task: Task) -> FeatureUnion:
    parts = 4 if task.has_pairs else 1  # see `_pair_features`
    max_features = min(_MAX_FEATURES, _MAX_WEIGHTS // (task.outputs * parts))
    settings = {"max_features": max_features, "sublinear_tf": True, "dtype": np.float32}
    return make_union(
        # Single letters and punctuation are words too, so that each text has some.
        TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), **settings),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), **settings),
    )


def _pair_features(vectors: list[csr_matrix], texts: list["pd.Series[str]"]) -> csr_matrix:
    """Return the vectors of both texts, their absolute difference, their product and its sum, and the word overlap."""
    first, second = vectors
    product = first.multiply(second)
    # A single block in float64 would turn the whole matrix into float64.
    similarity = csr_matrix(product.sum(axis=1), dtype=np.float32)
    overlap = csr_matrix([*map(_overlap, *texts)], dtype=np.float32)
    return hstack([first, second, abs(first - second), product, similarity, overlap], format="csr")


def _overlap(first: str, second: str) -> list[float]:
    """Return the common words of two texts as a proportion of the words of both, of the first, and of the second."""
    first_words, second_words = (set(_WORD.findall(text.lower())) for text in (first, second))
    common = len(first_words & second_words)
    return [common / max(len(words), 1) for words in (first_words | second_words, first_words, second_words)]


def _logits(model: Any, features: Any, task: Task) -> NDArray[np.float64]:
    """Return the logits, shape (rows, outputs)."""
    shape = features.shape[0], task.outputs
    with threadpool_limits(1):
        scores = model.predict(features) if task.is_regression else model.decision_function(features)
    if task.is_regression:
        return np.reshape(scores, shape)
    if task.is_multi_label:
        # If no row of train has a label, or every row has it, OneVsRestClassifier returns no logit.
        is_constant = [not hasattr(estimator, "coef_") for estimator in model[-1].estimators_]
        constants = np.where(model.predict(features).reshape(shape), -_ABSENT, _ABSENT)
        return np.where(is_constant, constants, scores.reshape(shape))
    logits = np.full(shape, _ABSENT)
    logits[:, model.classes_] = scores if scores.ndim == 2 else np.column_stack([-scores / 2, scores / 2])
    return logits


def main(params: Params) -> None:
    max_length, batch_size = params.tokenize.max_length, params.predict.batch_size
    max_samples, encoder = params.predict.max_samples, None
    if params.baseline.frozen:
        device = set_up_device(params.train.precision, params.train.num_threads)
        encoder = FrozenEncoder(PRETRAINED, max_length, batch_size, device)
    # Git tracks the scores of another model, and would show them for an experiment that ends here.
    (METRICS_DIR / "evaluation.json").unlink(missing_ok=True)
    baseline(RAW, BASELINES, max_samples, encoder)


if __name__ == "__main__":
    run_stage("baseline", main)
