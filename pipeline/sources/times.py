"""The times of rows, by which `data.split.type: datetime` orders them."""

import math
import re
from datetime import UTC, datetime

from pipeline.core.messages import UserError
from pipeline.tabular.reading import shown

_YEAR = re.compile(r"[0-9]{4}")
_COMPACT = re.compile(r"[0-9]{8}")  # 20241231, which Python reads as a date


class Times:
    """A column of times, which are all dates (ISO 8601, or a year) or all numbers.

    Only the whole column tells a year from a number: 2024 is a year next to 2024-12-31, and a number next to 999.
    """

    def __init__(self, column: str) -> None:
        self._column = column
        self._dates = ""  # the first date that cannot be meant as a number
        self._numbers = ""  # the first number that cannot be a date

    def add(self, where: str, text: str) -> None:
        """Note the value of a row. Raises UserError if it is no time, or if the column has dates and numbers."""
        date, number = _date(text), _number(text)
        value = f"{where}: {self._column} is {shown(text)}"
        if date is None and number is None:
            raise UserError(f"{value}; write times as 2024-12-31 or 2024-12-31T23:59:59 (ISO 8601), or as numbers")
        if date is None:
            self._numbers = self._numbers or value
        elif number is None or _COMPACT.fullmatch(text):
            self._dates = self._dates or value
        if self._dates and self._numbers:
            raise UserError(
                f"{self._dates}, a date, but {self._numbers}, a number; write all times as dates such as 2024-12-31, "
                "or all as numbers"
            )

    def seconds(self, text: str) -> float:
        """Seconds since 1970; a number is returned as it is. Only after all values have been added."""
        time = _number(text) if self._numbers else _date(text)
        if time is None:
            raise ValueError(text)
        return time


def _date(text: str) -> float | None:
    try:
        time = datetime.fromisoformat(f"{text}-01-01" if _YEAR.fullmatch(text) else text)
    except ValueError:
        return None
    return time.replace(tzinfo=time.tzinfo or UTC).timestamp()


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
