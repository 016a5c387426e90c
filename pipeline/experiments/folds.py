"""The runs of a fold group, together: each labeled row of train and validation, predicted by the model of its fold."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.core.messages import UserError
from pipeline.evaluation.metrics import Floats, Ints, scores
from pipeline.evaluation.predictions import Predictions
from pipeline.evaluation.signature import digest
from pipeline.experiments.revisions import Run

OUT_OF_FOLD = "out-of-fold"  # the name of the only split of a pooled run
FOLD_SPLIT = "test"  # the split that holds the fold, see `sources.folds`


def pooled_run(name: str, runs: Sequence[Run]) -> Run:
    """Return a run with the predictions of all folds, in the order of the examples' ids.

    Args:
        name: The name of the fold group.
        runs: The runs of all folds.

    Raises:
        UserError: A fold is missing.
    """
    first = runs[0]
    k = int(str(first.fold).rpartition("/")[2])
    finished = {run.fold for run in runs}
    if missing := [fold for number in range(1, k + 1) if (fold := f"{number}/{k}") not in finished]:
        raise UserError(f'{name}: these folds have not run: {", ".join(missing)}. Repeat "python -m pipeline.folds".')
    predictions = [run.predictions[FOLD_SPLIT] for run in runs]
    order = np.argsort(np.concatenate([fold.idx for fold in predictions]))
    texts = [text for run in runs for text in run.texts[FOLD_SPLIT]]
    signature = {entry: value for entry, value in first.signature.items() if entry not in first.predictions}
    return first._replace(
        name=name,
        commit=None,
        parameters=first.parameters | {"data.split": first.parameters["data.split"] | {"fold": f"{k} folds"}},
        task=replace(first.task, predicted_splits=[OUT_OF_FOLD]),
        signature=signature | {OUT_OF_FOLD: f"{len(order)}@{digest([run.signature[FOLD_SPLIT] for run in runs])}"},
        predictions={OUT_OF_FOLD: _concatenated(predictions, order)},
        texts={OUT_OF_FOLD: [texts[row] for row in order]},
    )


def _concatenated(folds: Sequence[Predictions], order: Ints) -> Predictions:
    """Return the predictions of all folds in this order."""
    columns = {
        name: np.concatenate([getattr(fold, name) for fold in folds])[order]
        for name in ("idx", "labels", "predicted", "logits")
    }
    probability = None
    if folds[0].probability is not None:
        probability = np.concatenate([fold.probability for fold in folds])[order]
    return Predictions(**columns, probability=probability, swapped=None)


def fold_scores(metric: str, runs: Sequence[Run]) -> Floats:
    """Return the score of each fold, shape (k,)."""
    folds = [run.predictions[FOLD_SPLIT] for run in runs]
    return np.array([scores([metric], fold.labels, fold.predicted, fold.probability)[metric] for fold in folds])
