"""How the text files of a user are written: the delimiter, the encoding and the header, and the options to set them."""

import argparse
import csv
import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pipeline.tabular.opening import data_suffix, decoded_lines, open_text, text_codec

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
_DELIMITER_NAMES = {"tab": "\t", "\\t": "\t", **{delimiter: delimiter for delimiter in DELIMITERS}}
_HEAD = 100  # lines that the guesses are based on
_NON_DECIMAL_COMMA = re.compile(r"(?<!\d),|,(?!\d)")
_SEPARATOR_LINE = re.compile(r'"?sep=([,;\t|])"?\s*', re.IGNORECASE)  # Excel's own first line

# The longest field in characters. A quote that is never closed would take the rest of the file.
csv.field_size_limit(10_000_000)


class FileFormat(NamedTuple):
    """How to read CSV, TSV and JSON files.

    Attributes:
        delimiter: The character between the columns of CSV and TSV files. None means that the first lines decide.
        encoding: The name of a Python codec.
        header: Whether the first row of CSV and TSV files contains the names of the columns. If it does not, the
            columns are called column_1, column_2 and so on.
    """

    delimiter: str | None = None
    encoding: str = "utf-8"
    header: bool = True


DEFAULT_FORMAT = FileFormat()


def add_format_options(parser: argparse.ArgumentParser, header: bool | None = True) -> None:
    """Add --delimiter, --encoding, --header and --no-header."""
    parser.add_argument(
        "--delimiter", metavar="CHARACTER", choices=list(_DELIMITER_NAMES),
        help="the character between the columns of a CSV or TSV file: , ; | or tab (default: the one that its first "
        "lines use)",
    )  # fmt: skip
    parser.add_argument(
        "--encoding", metavar="NAME", default="utf-8",
        help="the encoding of a text file, for example cp1252 or utf-16 (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--header", action=argparse.BooleanOptionalAction, default=header,
        help="whether the first row of a CSV or TSV file contains the names of the columns; if not, they are called "
        f"column_1, column_2 and so on (default: {'it does' if header else 'the first rows decide'})",
    )  # fmt: skip


def chosen_format(arguments: argparse.Namespace) -> FileFormat:
    """Return the format that the options describe. Raises UserError if the encoding is unknown."""
    text_codec(arguments.encoding)
    return FileFormat(_DELIMITER_NAMES.get(arguments.delimiter), arguments.encoding, arguments.header is not False)


class Head(NamedTuple):
    """The start of a CSV or TSV file.

    Attributes:
        lines: The first lines, without Excel's line `sep=;`.
        skipped: The number of lines before `lines`.
        delimiter: The delimiter that the user has set, or the one that the lines use.
    """

    lines: list[str]
    skipped: int
    delimiter: str

    @property
    def skips_spaces(self) -> bool:
        """Whether a space follows each delimiter in the first line, and some quotes follow such a space."""
        names = "".join(self.lines[:1]).split(self.delimiter)[1:]
        return all(name.startswith(" ") for name in names) and any(f'{self.delimiter} "' in line for line in self.lines)

    def rows(self) -> list[list[str]]:
        """Return the rows, without blank lines."""
        return _split(self.lines, self.delimiter, skips_spaces=self.skips_spaces)


def take_head(path: Path, lines: Iterable[str], file_format: FileFormat) -> Head:
    """Take the first lines of a CSV or TSV file, and determine the delimiter."""
    head = list(islice(lines, _HEAD))
    usual = "\t" if data_suffix(path) == ".tsv" else ","
    if head and (separator := _SEPARATOR_LINE.fullmatch(head[0])):
        return Head(head[1:], 1, file_format.delimiter or separator[1])
    return Head(head, 0, file_format.delimiter or detect_delimiter(head, usual))


def read_head(path: Path, file_format: FileFormat) -> Head:
    """Read the start of a CSV or TSV file. Raises UserError if it cannot be read."""
    with open_text(path, file_format.encoding, newline="") as file:
        return take_head(path, decoded_lines(path, file, file_format.encoding), file_format)


def detect_delimiter(lines: list[str], usual: str) -> str:
    """Return the delimiter that splits the most rows into as many fields as the first row, which must be at least two.

    `usual` wins ties. It is also returned if no delimiter fits most of the rows, as in a file with a single column. But
    if there are only decimal commas, as in "Guter Film;0,5", the semicolon wins against the comma.
    """
    preferred = ";" if usual == "," and not _NON_DECIMAL_COMMA.search("".join(lines)) else usual
    best, best_fit = usual, 0.5
    for delimiter in [preferred, usual, *DELIMITERS]:
        fit = _fit(_split(lines, delimiter))
        if fit > best_fit:
            best, best_fit = delimiter, fit
    return best


def _split(lines: list[str], delimiter: str, *, skips_spaces: bool = False) -> list[list[str]]:
    """Split lines into rows of fields, without blank lines. Return an empty list if a field is too long."""
    with suppress(csv.Error):
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=skips_spaces)
        return [fields for fields in reader if fields]
    return []


def _fit(rows: list[list[str]]) -> float:
    """Return the proportion of the rows that have as many fields as the first row, or 0 if it has only one."""
    if not rows or len(rows[0]) < 2:
        return 0
    widths = [len(row) for row in rows]
    return widths.count(widths[0]) / len(widths)
