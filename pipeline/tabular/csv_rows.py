"""Read the rows of CSV and TSV files. Every row must have as many fields as the header."""

import csv
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from pipeline.core.messages import UserError, log
from pipeline.tabular.file_format import DELIMITERS, FileFormat, Head, take_head
from pipeline.tabular.opening import Rows, decoded_lines, open_text

# The name of a column without a name, after pandas has read and written it. "Unnamed: 0" is an index.
_UNNAMED_NON_INDEX = re.compile(r"|Unnamed: [1-9]\d*")
_REMEDY = 'enclose it in double quotes and double the quotes inside it: "He said ""yes""."'


def csv_rows(path: Path, file_format: FileFormat, select: Callable[[list[str]], list[str]]) -> Rows:
    """Yield the rows of a CSV or TSV file, with the line on which each row starts.

    Blank lines are skipped. In a file with only one column, a blank line before the last row is an empty field. After
    the last row, this logs a warning if columns without a name contain data.

    Args:
        select: Returns the names of the columns to read, given all names.

    Raises:
        UserError: A row does not have as many fields as the header, repeats the header, has a misplaced double quote,
            or has a field that is too long.
    """
    with open_text(path, file_format.encoding, newline="") as file:
        lines = decoded_lines(path, file, file_format.encoding)
        head = take_head(path, lines, file_format)
        header: list[str] = []
        header_fields: list[str] = []
        width_remedy = ""
        selected: set[str] = set()
        blank_lines: list[int] = []
        unnamed: list[int] = []  # the positions of the columns without a name
        unnamed_lines: list[int] = []  # the lines of the rows that have data in such columns
        for line, fields in _split_rows(path, head, lines):
            if not fields:
                if header:
                    blank_lines.append(line)
                continue
            if not header:
                header = _header(fields, file_format)
                width_remedy = _width_remedy(head, len(header))
                selected.update(select(header))
                unnamed = [
                    position
                    for position, name in enumerate(header)
                    if _UNNAMED_NON_INDEX.fullmatch(name) and name not in selected
                ]
                if file_format.header:
                    header_fields = fields
                    continue
            if len(header) == 1:  # A blank line that is followed by another row is a row with an empty field.
                yield from ((blank_line, {header[0]: ""}) for blank_line in blank_lines)
                blank_lines.clear()
            if len(fields) > 1 and fields == header_fields:
                raise UserError(
                    f"{path} line {line} repeats the header, probably because files were joined. Remove the line."
                )
            elif len(fields) == len(header):
                # The first column is usually an index, but no index has texts of five words.
                if any(fields[position].strip() and (position or fields[0].count(" ") > 3) for position in unnamed):
                    unnamed_lines.append(line)
                yield line, {name: field for name, field in zip(header, fields, strict=True) if name in selected}
            else:
                first = "header" if file_format.header else "first row"
                raise UserError(
                    f"{path} line {line} must have as many fields as the {first} ({len(header)}), got {len(fields)}. "
                    f"{width_remedy}"
                )
        if unnamed_lines:
            log.warning(
                "%s has data in columns without a name in %s rows, first in line %d. This data is not read. If a text "
                "was cut off at a comma, enclose it in double quotes. Otherwise, name or remove the columns.",
                path, f"{len(unnamed_lines):,}", unnamed_lines[0],
            )  # fmt: skip


def _width_remedy(head: Head, width: int) -> str:
    """Return what to do if a row does not have as many fields as the header."""
    remedy = f"Enclose a field that contains a {DELIMITERS[head.delimiter]} or a line break in double quotes."
    if width == 1:
        remedy += (
            " Remove any lines above the column names. If another character separates the columns, set data.delimiter "
            "(in a command, --delimiter)."
        )
    elif {len(row) for row in head.rows()[1:]} == {width + 1}:
        remedy += " If R wrote the file, write it again with row.names=FALSE."
    return remedy


def _split_rows(path: Path, head: Head, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each row, and the line on which the row starts.

    Some programs do not quote fields, especially if tabs, bars or semicolons separate them. A text that starts with a
    double quote then takes all rows up to a text that ends with one. So this logs a warning about the first row that
    may be such a case, and the number of such rows.
    """
    reader = csv.reader(
        chain(head.lines, lines), delimiter=head.delimiter, skipinitialspace=head.skips_spaces, strict=True
    )
    line = head.skipped + 1
    suspicious_lines: list[int] = []
    first_values, last_values = ({row[position] for row in head.rows()} - {""} for position in (0, -1))
    try:
        for fields in reader:
            last_line = head.skipped + reader.line_num
            if last_line > line and any(
                _may_be_joined(field, head.delimiter, first_values, last_values) for field in fields
            ):
                if not suspicious_lines:
                    log.warning(
                        "%s lines %d to %d are read as one row, because double quotes enclose the line breaks. If they "
                        "should be several rows, find the field that contains double quotes, %s",
                        path, line, last_line, _REMEDY,
                    )  # fmt: skip
                suspicious_lines.append(line)
            yield line, fields
            line = last_line + 1
        if len(suspicious_lines) > 1:
            log.warning(
                "%s: double quotes join several lines in %s rows, first in line %d",
                path, f"{len(suspicious_lines):,}", suspicious_lines[0],
            )  # fmt: skip
    except csv.Error as error:
        raise UserError(
            f"{path} line {line} cannot be read ({error}). If a field contains double quotes, {_REMEDY} To convert the "
            'whole file, see "Files" in docs/data_files.md.'
        ) from None


def _may_be_joined(field: str, delimiter: str, first_values: set[str], last_values: set[str]) -> bool:
    """Return whether a field may contain several rows.

    Texts often contain commas. So with commas, a line must also start with a value of the first column, or end with one
    of the last column.

    Args:
        first_values: Values of the first column.
        last_values: Values of the last column.
    """
    if delimiter != "," or delimiter not in field:
        return delimiter in field
    lines = [line.split(delimiter) for line in field.splitlines()]
    ends_like_a_row = any(len(parts) > 1 and parts[-1] in last_values for parts in lines[:-1])
    starts_like_a_row = any(len(parts) > 1 and parts[0] in first_values for parts in lines[1:])
    return ends_like_a_row or starts_like_a_row


def _header(fields: list[str], file_format: FileFormat) -> list[str]:
    if file_format.header:
        return [name.strip() for name in fields]
    return [f"column_{number}" for number in range(1, len(fields) + 1)]
