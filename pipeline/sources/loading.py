"""Load the corpus that `data.task` names."""

from pathlib import Path

from pipeline.params import DataParams
from pipeline.sources.corpus import Corpus, make_corpus
from pipeline.sources.corrections import correct
from pipeline.sources.demo import load_demo
from pipeline.sources.file_format import FileFormat
from pipeline.sources.files import find_files, read_files
from pipeline.sources.glue_rows import load_glue
from pipeline.sources.hub_data import load_hub


def load_corpus(params: DataParams) -> Corpus:
    """Load the rows of all splits. Rows without a text or a label are dropped or an error, depending on `on_missing`.

    Raises:
        UserError: The data cannot be read or fetched, or it does not match `params`.
    """
    if params.task == "demo":
        return load_demo()
    load = {"custom": load_custom, "hub": load_hub}.get(params.task, load_glue)
    return correct(load(params), Path(params.corrections))


def load_custom(params: DataParams) -> Corpus:
    """Read the files of data.directory, and make the splits that have no file.

    Raises:
        UserError: A file has an error, or the files do not fit the section `data` of params.yaml.
    """
    file_format = FileFormat(params.delimiter, params.encoding, params.header)
    tables, sha256 = read_files(find_files(Path(params.directory)), file_format)
    return make_corpus(tables, params, {"sha256": sha256})
