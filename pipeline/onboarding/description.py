"""Describe data and classes for a terminal."""

import json
import shutil
from collections.abc import Sequence

from pipeline.core.data_card import DataCard
from pipeline.core.task import Task
from pipeline.core.text import aligned
from pipeline.onboarding.profile import ColumnProfile

_MAX_CLASSES = 20


def count(number: int, total: int) -> str:
    return f"{number:,} ({number / max(total, 1):.1%})"


def describe_columns(columns: Sequence[ColumnProfile]) -> list[str]:
    """Return a table with a row for each column."""
    rows = [
        [
            column.name,
            column.type,
            f"{column.distinct:,}",
            count(column.missing, column.rows),
            ", ".join(column.examples),
        ]
        for column in columns
    ]
    width = shutil.get_terminal_size((120, 0)).columns
    return [line[:width] for line in aligned([["column", "type", "distinct", "missing", "examples"], *rows], "left")]


def describe_labels(task: Task, card: DataCard) -> list[str]:
    """Return a table with the number of rows of each class or label, or the range of the numbers."""
    labeled = {split: card.splits[split] for split in task.splits if split not in task.unlabeled_splits}
    if not task.labels:
        header = ["", *labeled]
        statistics = [
            [name, *(f"{counts.numbers[name]:.4g}" for counts in labeled.values())]
            for name in ("mean", "std", "min", "max")
        ]
        return aligned([header, *statistics], "right")
    rows = [
        [name, *(count(counts.labels[number], counts.rows) for counts in labeled.values())]
        for number, name in enumerate(task.labels[:_MAX_CLASSES])
    ]
    lines = aligned([["class" if task.problem_type.startswith("single") else "label", *labeled], *rows], "right")
    if len(task.labels) > _MAX_CLASSES:
        lines.append(f"and {len(task.labels) - _MAX_CLASSES} more")
    if task.binary:
        swapped = json.dumps({name: name for name in reversed(task.labels)}, ensure_ascii=False)
        lines += [
            f'The positive class is "{task.labels[1]}", the second one. F1 is computed for it.',
            f'To make "{task.labels[0]}" the positive class, set data.id2label in params.yaml: {swapped}',
        ]
    return lines
