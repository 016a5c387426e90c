"""Errors about a single row, which a command can raise or collect."""

from collections.abc import Callable
from typing import Any

from pipeline.core.messages import UserError


class RowError(UserError):
    """A row that cannot be used.

    Attributes:
        where: The file and the line. The message starts with it.
        why: The rest of the message: what was found and what to do.
        row: The part of the row that could be read.
    """

    def __init__(self, where: str, why: str, row: Any) -> None:
        super().__init__(f"{where} {why}")
        self.where, self.why, self.row = where, why, row


OnError = Callable[[RowError], None]


def raise_row_error(error: RowError) -> None:
    """Raise the error, to stop at the first row that cannot be used."""
    raise error
