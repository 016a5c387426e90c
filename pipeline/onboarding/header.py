"""Guess whether the first row of a CSV or TSV file contains the names of the columns."""

from itertools import chain
from statistics import median

import pandas as pd

from pipeline.onboarding.profile import PAIR_NAMES, TEXT_NAMES, normalize_name
from pipeline.sources.label_values import is_number

_LONG_NAME = 40  # in characters; longer "names" are texts if the rest of the column is as long
_TEXT_COLUMNS = {*chain.from_iterable(TEXT_NAMES), *chain.from_iterable(PAIR_NAMES)}


def guess_header(rows: list[list[str]]) -> bool:
    """Guess from the first rows of a file whether the first one contains the names of the columns.

    A name that is common for text columns, such as "text", decides that it does, unless it is also a value of its
    column. The numbers from 0 also decide that it does, because pandas writes them for columns without names.
    Otherwise, any of these decides that it does not: a name that is a number, a name that is also a value of its
    column, or a name of more than 40 characters above values that are mostly as long, unless another name is a word
    above numbers. Empty names say nothing, and neither do rows that repeat the first one, as in joined files.
    """
    names = [name.strip() for name in rows[0]] if rows else []
    if not any(names):
        return False
    data_rows = [row for row in rows[1:] if len(row) == len(names) and row != rows[0]]
    columns = [[row[column].strip() for row in data_rows] for column in range(len(names))]
    if names == [str(number) for number in range(len(names))] or any(
        normalize_name(name) in _TEXT_COLUMNS and name not in values
        for name, values in zip(names, columns, strict=True)
    ):
        return True
    above_numbers = any(
        name and values and not is_number(name) and all(map(is_number, values))
        for name, values in zip(names, columns, strict=True)
    )
    for name, values in zip(names, columns, strict=True):
        long = len(name) > _LONG_NAME and len(values) > 0 and median(map(len, values)) > _LONG_NAME
        if name and (is_number(name) or name in values or (long and not above_numbers)):
            return False
    return True


def second_header(table: pd.DataFrame) -> list[str]:
    """Return the names of columns that the second row repeats, as in exports from Qualtrics.

    There, the second row has the questions, and repeats only the names of columns without a question. So the result is
    empty if the row repeats fewer than two names, or all of them.
    """
    columns = [table[name].tolist() for name in table]
    names = [
        values[0] for values in columns if values[0] and values[:1] == values[1:2] and values.count(values[0]) == 2
    ]
    return names if 1 < len(names) < len(columns) else []
