"""Choose the training examples if `train.max_train_samples` limits them."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def nested_sample(labels: NDArray[np.generic], groups: NDArray[np.integer], size: int, seed: int) -> NDArray[np.intp]:
    """Return the positions of `size` examples, in ascending order.

    With the same seed, a smaller sample is part of a larger one. Each class has nearly the same proportion as in all
    examples. Examples of the same group are drawn together, but the last group of a class may be incomplete.

    Args:
        labels: Class numbers, shape (n,). The labels of other problem types do not stratify the sample.
        groups: Numbers from 0, shape (n,).
    """
    random_rank = np.random.default_rng(seed).permutation(int(groups.max()) + 1)[groups]
    examples = pd.DataFrame({"class": labels if _are_classes(labels) else 0, "rank": random_rank})
    examples["class"] = examples.groupby("rank")["class"].transform("first")  # A group counts for a single class.
    shuffled = examples.sort_values("rank", kind="stable")
    # The position within its class, from 0 to 1. Sorted by it, every beginning has the same mixture of classes.
    by_class = shuffled.groupby("class")["rank"]
    position = (by_class.cumcount() + 0.5) / by_class.transform("size")
    chosen: NDArray[np.intp] = position.sort_values(kind="stable").index[:size].to_numpy()
    return np.sort(chosen)


def _are_classes(labels: NDArray[np.generic]) -> bool:
    return labels.ndim == 1 and bool(np.issubdtype(labels.dtype, np.integer))
