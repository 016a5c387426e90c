"""How the text files of a user are written."""

from typing import NamedTuple


class FileFormat(NamedTuple):
    """How to read CSV, TSV and JSON files.

    Attributes:
        delimiter: The character between the columns of CSV and TSV files. None means that the first lines decide.
        encoding: The name of a Python codec.
        header: Whether the first row of CSV and TSV files contains the names of the columns. If it does not, the columns
            are called column_1, column_2 and so on.
    """

    delimiter: str | None = None
    encoding: str = "utf-8"
    header: bool = True
