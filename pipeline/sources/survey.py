"""What to know of the data before training: fills the card of `core.data_card`."""

from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.core.data_card import DataCard, Leak, Shift, SplitCard
from pipeline.core.tables import to_numpy
from pipeline.core.task import TRAIN, Task
from pipeline.sources.duplicates import CONTRADICTORY, IDENTICAL, REPEATED, Codes, Columns, Marks
from pipeline.tabular.reading import listing, shown

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
    labelled = [split for split in task.splits if split not in task.unlabelled]
    counts = {split: _counts(task, raw, split) for split in labelled if task.labels}
    numbers = {split: np.concatenate(list(_labels(raw, split))) for split in labelled if not task.labels}
    cards = {}
    for code, split in enumerate(task.splits):
        found = {}
        for mark in (REPEATED, CONTRADICTORY, IDENTICAL):
            chosen = _of_split(codes, code, marks.rows & mark)
            found[mark] = int(np.count_nonzero(chosen))
            if found[mark]:
                warnings.append(f"{split}: {_MARKS[mark]}: {found_rows(columns, chosen)}")
        of_split = numbers.get(split)
        cards[split] = SplitCard(
            rows=int(np.count_nonzero(codes == code)),
            labels=counts[split].tolist() if split in counts else [],
            numbers={} if of_split is None else {name: float(getattr(np, name)(of_split)) for name in _NUMBERS},
            repeated=found[REPEATED],
            contradictory=found[CONTRADICTORY],
            identical=found[IDENTICAL],
        )
    leakage = []
    for one, other in combinations(range(len(task.splits)), 2):
        shared = [_of_split(codes, other, of & (1 << one)) for of in marks]
        if task.splits[other] in task.unlabelled or task.splits[one] in task.unlabelled:
            shared[2][:] = False
        leak = Leak(
            later=task.splits[other],
            earlier=task.splits[one],
            rows=int(np.count_nonzero(shared[0])),
            texts=int(np.count_nonzero(shared[1])),
            contradictory=int(np.count_nonzero(shared[2])),
        )
        leakage.append(leak)
        if leak.rows:
            warnings.append(f"{leak.later}: rows that are also in {leak.earlier}: {found_rows(columns, shared[0])}")
        if leak.contradictory:
            rows = found_rows(columns, shared[2])
            warnings.append(f"{leak.later}: rows that are also in {leak.earlier}, with another label: {rows}")
        if leak.texts > leak.rows:
            named = found_rows(columns, shared[1])
            warnings.append(f"{leak.later}: rows that share a text with {leak.earlier}: {named}")
    if task.labels:
        warnings += _of_classes(task, raw, columns, codes, counts)
    shifts = {}
    for split in labelled[1:]:
        if task.labels:
            shifts[split] = _shift(task, counts[TRAIN], cards[TRAIN].rows, counts[split], cards[split].rows)
        else:
            shifts[split] = Shift(p=kolmogorov_smirnov(numbers[TRAIN], numbers[split]), label=None)
    for split, shift in shifts.items():
        if shift.significant:
            most = ""
            if shift.label is not None:
                share, other = (counts[of][shift.label] / cards[of].rows for of in (split, TRAIN))
                most = f"; most of all {shown(task.labels[shift.label])}: {share:.1%}, in train {other:.1%}"
            warnings.append(f"{split}: its labels are distributed differently from train's (p = {shift.p:.2g}){most}")
    return DataCard(splits=cards, leakage=leakage, shifts=shifts, warnings=warnings)


def _of_split(codes: Codes, code: int, marked: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows are of a split and marked; with few temporary arrays, as long as the data."""
    chosen: NDArray[np.bool_] = codes == code
    np.logical_and(chosen, marked, out=chosen)
    return chosen


def _labels(raw: Path, split: str) -> Iterator[Labels]:
    """The labels of a split that is written in `raw`, in batches of shape (n,) or (n, labels)."""
    with pq.ParquetFile(raw / f"{split}.parquet") as file:
        for batch in file.iter_batches(columns=["label"]):
            yield to_numpy(batch["label"])


def _counts(task: Task, raw: Path, split: str) -> NDArray[np.int64]:
    """How many rows of a split have each class or label."""
    counts = np.zeros(len(task.labels), dtype=np.int64)
    for labels in _labels(raw, split):
        counts += labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels, minlength=len(counts))
    return counts


def _of_classes(
    task: Task, raw: Path, columns: Columns, codes: Codes, counts: dict[str, NDArray[np.int64]]
) -> list[str]:
    """Warnings about classes that are missing in a split, or of which train has few rows."""
    warnings = []
    for split, of in counts.items():
        if len(absent := np.flatnonzero((counts[TRAIN] == 0) & (of > 0))):
            has = [np.isin(of, absent) if of.ndim == 1 else of[:, absent].any(axis=1) for of in _labels(raw, split)]
            chosen = codes == task.splits.index(split)
            chosen[chosen] = np.concatenate(has)
            names = listing(shown(task.labels[label]) for label in absent)
            warnings.append(
                f"{split}: rows with a label that train does not have ({names}): {found_rows(columns, chosen)}"
            )
        if split != TRAIN and len(absent := np.flatnonzero(of == 0)):
            names = listing(shown(task.labels[label]) for label in absent)
            warnings.append(
                f"{split}: has no row with {len(absent)} of {len(of)} labels ({names}), which cannot be scored there"
            )
    few = [f"{shown(name)} ({n})" for name, n in zip(task.labels, counts[TRAIN], strict=True) if n < _FEW]
    if few:
        warnings.append(f"train: classes with under {_FEW} rows, too few to learn them well: {listing(few)}")
    return warnings


def _shift(task: Task, train: NDArray[np.int64], rows: int, other: NDArray[np.int64], others: int) -> Shift:
    """Of classes or labels. train, other: how many rows have each. rows, others: how many there are."""
    if task.problem_type == "single_label_classification":
        return Shift(p=chi_square(train, other), label=int(np.abs(train / rows - other / others).argmax()))
    pairs = zip(train, other, strict=True)
    p = [chi_square(np.array([one, rows - one]), np.array([two, others - two])) for one, two in pairs]
    return Shift(p=min(1.0, min(p) * len(p)), label=int(np.argmin(p)))  # Bonferroni's correction


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
