"""Predict the labels of new texts with the fine-tuned model.

Examples:
  # One text, or the two texts of a pair:
  python -m pipeline.classify "It rained on Monday." "On Monday, it rained."
  # A file with a column for each text, named as in the training data:
  python -m pipeline.classify --file new.csv --out answered.csv

More: docs/use_the_model.md
"""

import os
import shlex
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from pipeline.cli import as_command, command_parser

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.core.messages import UserError, log
from pipeline.core.output import require_file_path
from pipeline.core.paths import CLASSIFIER
from pipeline.evaluation.metrics import PROBABILITY_DECIMALS, logits_to_predictions, logits_to_probabilities
from pipeline.modeling.classifier import Classifier, read_settings
from pipeline.params import Precision
from pipeline.tabular.file_format import DEFAULT_FORMAT, FileFormat, add_format_options, chosen_format
from pipeline.tabular.reading import Batch, ColumnSelection, read_file
from pipeline.tabular.writing import column_types, writing_rows

_ROWS = 1 << 15  # that are scored at once


def classify(
    model: Path,
    source: list[str] | Path,
    out: Path | None,
    batch_size: int,
    precision: Literal["auto", Precision] | None = None,
    file_format: FileFormat = DEFAULT_FORMAT,
) -> None:
    """Write the rows of a file, or a single row of texts, with the predictions of the model.

    Raises UserError, and writes nothing, if the model, a row or a file cannot be used.

    Args:
        out: The file to write. None writes JSON Lines to standard output.
        precision: None means the precision in which the scores of the model were measured.
    """
    if out is not None:
        require_file_path(out)
    settings = read_settings(model)
    with writing_rows(out) as write:
        rows = _read_rows(source, settings.text_columns, file_format)
        texts = _texts(rows, settings.text_columns)
        if isinstance(source, Path) and out is not None and out.exists() and out.samefile(source):
            raise UserError(f"{out} is the same file as the input and would replace it. Name another file.")
        classifier = Classifier(model, batch_size, precision)  # This takes seconds, so mistakes are reported before it.
        if clashes := {"prediction", *(f"probability_{name}" for name in classifier.labels)} & rows.columns.keys():
            raise UserError(f'{source} has a column "{min(clashes)}", but the output needs this name. Rename it.')
        # Tokens need more memory than texts, so they are made and scored in several parts.
        starts = range(0, len(texts[0]), _ROWS)
        parts = [classifier.score([column[start : start + _ROWS] for column in texts]) for start in starts]
        logits, truncated = np.concatenate([logits for logits, _ in parts]), sum(count for _, count in parts)
        types = column_types(rows.schema)
        if classifier.problem_type == "multi_label_classification":
            types["prediction"] = pa.list_(pa.string())  # If no row has labels, the type cannot be inferred.
        write({**rows.columns, **_answers(classifier, logits)}, types)
    if truncated:
        proportion = f"{truncated:,} of {len(logits):,} rows ({truncated / len(logits):.1%})"
        log.warning("%s are longer than %d tokens and were truncated", proportion, settings.max_length)


def _read_rows(source: list[str] | Path, names: list[str], file_format: FileFormat) -> Batch:
    """Return the texts of the command line as a row, or all rows of a file with all of its columns."""
    text_columns = " and ".join(names)
    if isinstance(source, list):
        if len(source) != len(names):
            raise UserError(f"The model needs a text for {text_columns}, but you gave {len(source)} texts.")
        return Batch(Path("command line"), "row", [1], {name: [text] for name, text in zip(names, source, strict=True)})
    columns = ColumnSelection(names, keep_rest=True, remedy=f"The model reads {text_columns}. Rename a column.")
    batches = list(read_file(source, columns, file_format))
    if not batches:
        raise UserError(f"{source} has no rows. Add rows to it.")
    values: dict[str, list[Any]] = {name: [] for name in batches[-1].columns}  # In JSON, later rows can add columns.
    for batch in batches:
        for name, column in values.items():
            column += batch.columns.get(name, [None] * len(batch.numbers))
    return replace(batches[0], numbers=[number for batch in batches for number in batch.numbers], columns=values)


def _texts(rows: Batch, names: list[str]) -> list[tuple[str, ...]]:
    """Return the texts of each text column. Raises UserError at the first row in which a text is empty."""
    texts = []
    for row in range(len(rows.numbers)):
        texts.append([rows.text(row, name) for name in names])
        if empty := [name for name, text in zip(names, texts[-1], strict=True) if not text.strip()]:
            raise rows.error(row, f'has no text in column "{empty[0]}". Fill it in.')
    return list(zip(*texts, strict=True))


def _answers(classifier: Classifier, logits: NDArray[Any]) -> dict[str, list[Any]]:
    """Return the columns with the prediction and the probabilities. A regression has no probabilities."""
    problem_type, labels = classifier.problem_type, classifier.labels
    predictions = logits_to_predictions(problem_type, logits).tolist()
    if problem_type == "single_label_classification":
        predictions = [labels[number] for number in predictions]
    elif problem_type == "multi_label_classification":
        predictions = [[label for label, flag in zip(labels, flags, strict=True) if flag] for flags in predictions]
    answers = {"prediction": predictions}
    if (probabilities := logits_to_probabilities(problem_type, logits)) is not None:
        columns = zip(labels, probabilities.T.round(PROBABILITY_DECIMALS).tolist(), strict=True)
        answers |= {f"probability_{label}": column for label, column in columns}
    return answers


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # With "| head", this command ends silently.
    parser = command_parser("classify", __doc__)
    option = parser.add_argument
    option("texts", metavar="TEXT", nargs="*", help="the text to classify, or the two texts of a pair")
    option("--file", metavar="FILE", type=Path, help="classify each row of this CSV, TSV, JSON (Lines) or Parquet file")
    add_format_options(parser)
    option("--out", metavar="FILE", type=Path, help="CSV, TSV, JSON Lines or Parquet file to write (default: print)")
    option("--model", metavar="DIRECTORY", type=Path, default=CLASSIFIER, help="model to use (default: %(default)s)")
    option("--batch-size", metavar="NUMBER", type=int, default=32, help="rows per forward pass (default: %(default)s)")
    option("--precision", choices=("auto", *get_args(Precision)), help="default: that of the model's scores")
    arguments = parser.parse_args()
    if bool(arguments.texts) == bool(arguments.file):
        parser.error("Give either one or two texts, or --file.")
    if file := next(filter(os.path.isfile, arguments.texts), None):
        parser.error(f"{file} is a file. Use --file {shlex.quote(file)}.")
    if arguments.batch_size < 1:
        parser.error(f"--batch-size must be at least 1, got {arguments.batch_size}.")
    with as_command():
        source, file_format = arguments.file or arguments.texts, chosen_format(arguments)
        classify(arguments.model, source, arguments.out, arguments.batch_size, arguments.precision, file_format)


if __name__ == "__main__":
    main()
