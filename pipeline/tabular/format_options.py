"""The options of commands that read a user's files."""

import argparse

from pipeline.tabular.file_format import DELIMITERS, FileFormat

_NAMES = {"tab": "\t", "\\t": "\t", **{delimiter: delimiter for delimiter in DELIMITERS}}


def add_format_options(parser: argparse.ArgumentParser, header: bool | None = True) -> None:
    """Add --delimiter, --encoding, --header and --no-header."""
    parser.add_argument(
        "--delimiter", metavar="CHARACTER", choices=list(_NAMES),
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
    """Return the format that the options describe."""
    return FileFormat(_NAMES.get(arguments.delimiter), arguments.encoding, arguments.header is not False)
