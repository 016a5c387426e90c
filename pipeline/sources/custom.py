"""Load a corpus from the user's own files."""

from dataclasses import replace
from itertools import chain
from pathlib import Path

from pipeline.core.messages import UserError
from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, make_corpus
from pipeline.sources.fetch import file_sha256
from pipeline.sources.files import find_files
from pipeline.sources.raw_rows import RawRows, collect_rows, columns_to_read, require_rows
from pipeline.tabular.file_format import FileFormat
from pipeline.tabular.reading import read_file


def load_custom(params: DataParams) -> Corpus:
    """Read the files of data.directory, and make the splits that have no file.

    Raises:
        UserError: A file has an error, or the files do not fit the section `data` of params.yaml.
    """
    rows, sha256 = read_custom(params)
    return replace(make_corpus(rows, params), origin={"sha256": sha256})


def read_custom(params: DataParams) -> tuple[dict[str, RawRows], dict[str, str]]:
    """Read the rows of each split that has a file, and the checksum of each file."""
    file_format = FileFormat(params.delimiter, params.encoding, params.header)
    files = find_files(Path(params.directory))
    last_changes = {path: _last_change(path) for path in chain.from_iterable(files.values())}
    sha256 = {path.relative_to(params.directory).as_posix(): file_sha256(path) for path in last_changes}
    rows = {}
    for split, paths in files.items():
        columns = columns_to_read(split, params)
        batches = (require_rows(read_file(path, columns, file_format=file_format), path) for path in paths)
        rows[split] = collect_rows(chain.from_iterable(batches), split, params)
    if changed := next((path for path, time in last_changes.items() if _last_change(path) != time), None):
        raise UserError(f"{changed} changed while it was being read. Run the command again.")
    return rows, sha256


def _last_change(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    return status.st_mtime_ns, status.st_size
