"""What to know of the data before training: fills the card of `core.data_card`."""

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.core.data_card import DataCard, Leak, Shift, SplitCard
from pipeline.core.tables import to_numpy
from pipeline.core.task import TRAIN, Task
from pipeline.sources.duplicates import CONTRADICTORY, IDENTICAL, REPEATED, Codes, Columns, Marks
from pipeline.sources.files import listing, shown

_FEW = 50  # rows of a class, below which little is learnt of it
_NAMED = 5  # row numbers that a warning names
_NUMBERS = ("mean", "std", "min", "max")
_MARKS = {
    REPEATED: "duplicates of earlier rows",
    CONTRADICTORY: "duplicates of earlier rows with another label",
    IDENTICAL: "pairs of a text with itself",
}

Labels = NDArray[np.int64] | NDArray[np.float64]


def named_rows(count: int, idx: Iterable[object]) -> str:
    """How many rows, and the `idx` of the first."""
    first = [str(of) for of in idx][:_NAMED]
    return f"{count:,} (idx {', '.join(first)}{', ...' * (count > len(first))})"


def found_rows(columns: Columns, chosen: NDArray[np.bool_]) -> str:
    """As `named_rows`, of the rows where `chosen` is true."""
    count, idx, at = int(np.count_nonzero(chosen)), [], -1
    for _ in range(min(count, _NAMED)):
        at += 1 + int(chosen[at + 1 :].argmax())
        idx.append(columns.read("idx", at, 1)[0])
    return named_rows(count, idx)


def survey(task: Task, raw: Path, columns: Columns, codes: Codes, marks: Marks, earlier: list[str]) -> DataCard:
    """The card of the splits that are written in `raw`.

    codes: the split of each row. marks: what `duplicates.compare` found. earlier: warnings of the steps before.
    """
    warnings = [*earlier]
    labels = {split: read_labels(raw, split) for split in task.splits if split not in task.unlabelled}
    counts = {split: _counts(task, of) for split, of in labels.items()}
    cards = {}
    for code, split in enumerate(task.splits):
        found = {}
        for mark in (REPEATED, CONTRADICTORY, IDENTICAL):
            chosen = (codes == code) & (marks.rows & mark > 0)
            found[mark] = int(np.count_nonzero(chosen))
            if found[mark]:
                warnings.append(f"{split}: {_MARKS[mark]}: {found_rows(columns, chosen)}")
        numbers = labels[split] if split in labels and not task.labels else None
        cards[split] = SplitCard(
            rows=int(np.count_nonzero(codes == code)),
            labels=counts[split].tolist() if split in counts else [],
            numbers={} if numbers is None else {name: float(getattr(np, name)(numbers)) for name in _NUMBERS},
            repeated=found[REPEATED],
            contradictory=found[CONTRADICTORY],
            identical=found[IDENTICAL],
        )
    leakage = []
    for one, other in combinations(range(len(task.splits)), 2):
        shared = [(codes == other) & ((of >> one) & 1 > 0) for of in marks]
        leak = Leak(
            later=task.splits[other],
            earlier=task.splits[one],
            rows=int(np.count_nonzero(shared[0])),
            texts=int(np.count_nonzero(shared[1])),
        )
        leakage.append(leak)
        if leak.rows:
            warnings.append(f"{leak.later}: rows that are also in {leak.earlier}: {found_rows(columns, shared[0])}")
        if leak.texts > leak.rows:
            named = found_rows(columns, shared[1])
            warnings.append(f"{leak.later}: rows that share a text with {leak.earlier}: {named}")
    shifts = {split: _shift(task, labels[TRAIN], of) for split, of in labels.items() if split != TRAIN}
    if task.labels:
        warnings += _of_classes(task, columns, codes, labels, counts)
    for split, shift in shifts.items():
        if shift.significant:
            most = ""
            if shift.label is not None:
                share, other = (counts[of][shift.label] / cards[of].rows for of in (split, TRAIN))
                most = f"; most of all {shown(task.labels[shift.label])}: {share:.1%}, in train {other:.1%}"
            warnings.append(f"{split}: its labels are distributed otherwise than train's (p = {shift.p:.2g}){most}")
    return DataCard(splits=cards, leakage=leakage, shifts=shifts, warnings=warnings)


def read_labels(raw: Path, split: str) -> Labels:
    """The labels of a split that is written in `raw`, shape (n,) or (n, labels)."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(raw / f"{split}.parquet") as file:
        return to_numpy(file.read(columns=["label"])["label"])


def _counts(task: Task, labels: Labels) -> NDArray[np.int64]:
    """How many rows have each class or label; of a regression, none."""
    if labels.ndim == 2:
        of_labels: NDArray[np.int64] = labels.sum(axis=0)
        return of_labels
    return np.bincount(labels, minlength=len(task.labels)) if task.labels else np.zeros(0, dtype=np.int64)


def _of_classes(
    task: Task, columns: Columns, codes: Codes, labels: dict[str, Labels], counts: dict[str, NDArray[np.int64]]
) -> list[str]:
    """Warnings of classes that train has not, or few of."""
    warnings = []
    in_train = counts[TRAIN]
    for split, of in labels.items():
        if len(absent := np.flatnonzero((in_train == 0) & (counts[split] > 0))):
            chosen = codes == task.splits.index(split)
            chosen[chosen] = of[:, absent].any(axis=1) if of.ndim == 2 else np.isin(of, absent)
            names = listing(shown(task.labels[label]) for label in absent)
            warnings.append(f"{split}: rows with a label that train has not ({names}): {found_rows(columns, chosen)}")
    few = [f"{shown(name)} ({count})" for name, count in zip(task.labels, in_train, strict=True) if count < _FEW]
    if few:
        warnings.append(f"train: classes with under {_FEW} rows, too few to learn them well: {listing(few)}")
    return warnings


def _shift(task: Task, train: Labels, other: Labels) -> Shift:
    if not task.labels:
        return Shift(p=kolmogorov_smirnov(train, other), label=None)
    counts, others = (np.atleast_1d(_counts(task, of)) for of in (train, other))
    sizes = len(train), len(other)
    if train.ndim == 1:
        return Shift(p=chi_square(counts, others), label=int(np.abs(counts / sizes[0] - others / sizes[1]).argmax()))
    of_label = [
        chi_square(np.array([one, sizes[0] - one]), np.array([two, sizes[1] - two]))
        for one, two in zip(counts, others, strict=True)
    ]
    return Shift(p=min(1.0, min(of_label) * len(of_label)), label=int(np.argmin(of_label)))  # Bonferroni


def chi_square(counts: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """p of Pearson's test that two splits have the same distribution of labels, without a continuity correction.

    counts, other: how many rows of each split have each label, shape (labels,). 1 where all have the same label.
    """
    from scipy.special import chdtrc  # scipy.stats has the whole test, and takes half a second longer to import

    both = np.array([counts, other])
    both = both[:, both.any(axis=0)]
    freedom = both.shape[1] - 1
    if freedom < 1:
        return 1.0
    expected = np.outer(both.sum(axis=1), both.sum(axis=0)) / both.sum()
    return float(chdtrc(freedom, ((both - expected) ** 2 / expected).sum()))


def kolmogorov_smirnov(one: Labels, other: Labels) -> float:
    """p, for large samples, of the two-sample test that the numbers are distributed alike."""
    from scipy.special import kolmogorov

    values = np.concatenate([one, other])
    shares = [np.searchsorted(np.sort(of), values, side="right") / len(of) for of in (one, other)]
    return float(kolmogorov(np.abs(shares[0] - shares[1]).max() * (len(one) * len(other) / len(values)) ** 0.5))
