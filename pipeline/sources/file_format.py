"""How CSV, TSV and JSON files are written, and the command-line options for it."""

import argparse
from typing import NamedTuple

from pipeline.core.messages import UserError
from pipeline.params import check_encoding

DELIMITERS = (",", ";", "\t", "|")


class FileFormat(NamedTuple):
    """How a text file is written.

    Attributes:
        delimiter: The character between the columns. None means a tab in a .tsv file, and otherwise the one of
            `DELIMITERS` that the first line contains most often.
        header: Whether the first row has the names of the columns. If not, they are column_1, column_2 and so on.
    """

    delimiter: str | None = None
    encoding: str = "utf-8"
    header: bool = True


DEFAULT_FORMAT = FileFormat()


def add_format_options(parser: argparse.ArgumentParser) -> None:
    """Add --delimiter, --encoding and --no-header."""
    parser.add_argument(
        "--delimiter", metavar="CHARACTER", choices=[*DELIMITERS, "tab"],
        help="the character between the columns of a CSV or TSV file: , ; | or tab (default: a tab in a .tsv file, and "
        "otherwise the most frequent one in the first line)",
    )  # fmt: skip
    parser.add_argument(
        "--encoding", metavar="NAME", default="utf-8",
        help="the encoding of a text file, for example cp1252 or utf-16 (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--no-header", dest="header", action="store_false",
        help="the first row of a CSV or TSV file is data, and the columns are called column_1, column_2 and so on",
    )  # fmt: skip


def chosen_format(arguments: argparse.Namespace) -> FileFormat:
    """Return the format that the options describe. Raises UserError if Python does not know the encoding."""
    try:
        check_encoding(arguments.encoding)
    except ValueError as error:
        raise UserError(f'--encoding {error}, got "{arguments.encoding}".') from None
    delimiter = "\t" if arguments.delimiter == "tab" else arguments.delimiter
    return FileFormat(delimiter, arguments.encoding, arguments.header)
