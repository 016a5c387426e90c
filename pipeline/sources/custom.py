"""Load a corpus from the user's own files."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.core.task import TRAIN
from pipeline.params import DataParams
from pipeline.sources.columns import log_columns
from pipeline.sources.corpus import Corpus, make_corpus
from pipeline.sources.file_format import FileFormat
from pipeline.sources.files import find_files
from pipeline.sources.tables import Table, concat, read_bytes, read_table


def load_custom(params: DataParams) -> Corpus:
    """Read the files of data.directory, and make the splits that have no file.

    Raises:
        UserError: A file has an error, or the files do not fit the section `data` of params.yaml.
    """
    file_format = FileFormat(params.delimiter, params.encoding, params.header)
    tables, sha256 = read_files(find_files(Path(params.directory)), file_format)
    log_columns(tables[TRAIN])
    return make_corpus(tables, params, {"sha256": sha256})


def read_files(files: Mapping[str, Sequence[Path]], file_format: FileFormat) -> tuple[dict[str, Table], dict[str, str]]:
    """Return the rows of each split, and the checksum of each file by its name."""
    tables, sha256 = {}, {}
    for split, paths in files.items():
        parts = []
        for path in paths:
            content = read_bytes(path)
            sha256[path.name] = hashlib.sha256(content).hexdigest()
            parts.append(read_table(path, content, file_format))
        tables[split] = concat(parts)
    return tables, sha256
