"""Open the data files of a user, compressed or not and in any encoding."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pipeline.core.messages import UserError

LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a UTF-16 pair, which JSON can contain but UTF-8 cannot

# Encodings of files that are not UTF-8, and where such files come from.
_ENCODINGS = {
    "cp1252": "Western European", "mac_roman": "old Excel for Mac", "cp1251": "Cyrillic", "gb18030": "Chinese",
}  # fmt: skip

Rows = Iterator[tuple[int, dict[str, Any]]]  # the line or number of each row, and its values by column


def data_suffix(path: Path) -> str:
    """Return the suffix that says what a file contains: ".csv" for train.csv, TRAIN.CSV and train.csv.gz."""
    return (Path(path.stem) if is_compressed(path) else path).suffix.lower()


def data_stem(path: Path) -> str:
    """Return the name of a file without its suffixes: "train" for train.csv and train.csv.gz."""
    return Path(path.stem).stem if is_compressed(path) else path.stem


def is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, and decompress it if its name ends with .gz. An error of the file in the block is a UserError."""
    try:
        opener: Callable[..., Any] = gzip.open if is_compressed(path) else open
        with opener(path, "rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path} is not a complete gzip file ({error}). If it is not compressed, remove .gz from its name; "
            "otherwise, write or download it again."
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None


@contextmanager
def open_text(path: Path, encoding: str, newline: str) -> Iterator[io.TextIOWrapper]:
    """Open a file like `open_bytes`, and yield its lines. Bytes that cannot be decoded become lone surrogates."""
    codec = text_codec(encoding)
    try:
        with open_bytes(path) as file, io.TextIOWrapper(file, codec, "surrogateescape", newline) as lines:
            yield lines
    except UnicodeError as error:
        raise UserError(
            f"{path} cannot be read as {encoding} ({error}). Set data.encoding to the encoding of the file (in a "
            "command, --encoding)."
        ) from None


def text_codec(encoding: str) -> str:
    """Return the codec that reads an encoding, by its standard name.

    The codec of UTF-8 removes a byte order mark. Latin-1 means cp1252, as in browsers: https://encoding.spec.whatwg.org
    """
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        raise UserError(
            f'"{encoding}" is not a text encoding that Python knows. Set data.encoding (in a command, --encoding) to '
            "utf-8, cp1252 or utf-16, for example."
        ) from None
    name = codecs.lookup(encoding).name
    return {"utf-8": "utf-8-sig", "iso8859-1": "cp1252"}.get(name, name)


def decoded_lines(path: Path, lines: Iterable[str], encoding: str) -> Iterator[str]:
    """Yield lines of `open_text`. Raises UserError at the first line that is not in the encoding."""
    for number, line in enumerate(lines, 1):
        if escaped := LONE_SURROGATE.search(line):
            byte = escaped[0].encode("utf-8", "surrogateescape")
            codec = text_codec(encoding)
            *first, last = [f"{name} ({origin})" for name, origin in _ENCODINGS.items() if text_codec(name) != codec]
            raise UserError(
                f"{path} line {number} contains the byte 0x{byte.hex()}, which is not valid in {encoding}. Save the "
                "file as UTF-8, or set data.encoding (in a command, --encoding) to its encoding, such as "
                f"{', '.join(first)} or {last}."
            )
        yield line.removeprefix("\ufeff")  # Joined files have byte order marks inside.
