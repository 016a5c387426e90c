"""Long texts have several rows, their windows, which share an `idx`. All other texts have one row."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Idx = NDArray[np.integer[Any]]  # of each row


def first_windows(idx: Idx) -> NDArray[np.intp]:
    """Return the position of the first window of each text."""
    return np.flatnonzero(~pd.Index(idx).duplicated())


def windows_of(texts: NDArray[np.intp], idx: Idx) -> NDArray[np.intp]:
    """Return the positions of all windows of these texts, which are counted from 0 in the order of the rows."""
    text_of_window, _ = pd.factorize(idx)
    return np.flatnonzero(np.isin(text_of_window, texts))


def mean_over_windows(logits: NDArray[np.floating[Any]], idx: Idx) -> NDArray[np.float64]:
    """Average the logits of the windows of each text, in the order of their first windows."""
    windows = pd.DataFrame(logits.astype(np.float64)).groupby(idx, sort=False)
    return np.asarray(windows.mean(skipna=False))
