"""Predict the labels of new texts with the fine-tuned model.

Examples:
  # One text, or the two texts of a pair:
  python -m pipeline.classify "It rained on Monday." "On Monday, it rained."
  # A file with a column for each text, named as in the training data:
  python -m pipeline.classify --file new.csv --out answered.csv
  # Leave the prediction empty if its probability is below 0.8, and write the least certain rows first:
  python -m pipeline.classify --file new.csv --out answered.csv --min-probability 0.8 --sort uncertain

More: docs/use_the_model.md
"""

import os
import shlex
import signal
from itertools import compress
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from pipeline.cli import as_command, at_least, command_parser
from pipeline.core.messages import UserError, log
from pipeline.core.paths import CLASSIFIER
from pipeline.modeling.classifier import Classifier, read_settings
from pipeline.modeling.outputs import (
    PROBABILITY_DECIMALS,
    Logits,
    logits_to_predictions,
    logits_to_probabilities,
    value_probabilities,
)
from pipeline.params import Precision
from pipeline.sources.file_format import DEFAULT_FORMAT, FileFormat, add_format_options, chosen_format
from pipeline.sources.tables import Table, concat, json_lines, read_bytes, read_table, require_writable, write_rows

_ROWS, _ROWS_OF_WINDOWS = 1 << 15, 1 << 10  # that are scored at once, truncated or in windows


def classify(
    model: Path,
    source: list[str] | Path,
    out: Path | None,
    batch_size: int,
    *,
    precision: Precision | None = None,
    file_format: FileFormat = DEFAULT_FORMAT,
    min_probability: float | None = None,
    sort: Literal["uncertain"] | None = None,
) -> None:
    """Write the rows of a file, or a single row of texts, with the predictions of the model.

    Raises UserError, and writes nothing, if the model, a row or a file cannot be used.

    Args:
        out: The file to write. None writes JSON Lines to standard output.
        precision: None means the precision in which the scores of the model were measured.
        min_probability: The prediction is empty if its probability is lower. With several labels, the probability is
            that of the least certain label.
        sort: "uncertain" starts with the rows whose predictions have the lowest probability.
    """
    settings = read_settings(model)
    table = _read(source, settings.text_columns, file_format)
    texts = _texts(table, settings.text_columns)
    if out is not None:
        require_writable(out)
        if isinstance(source, Path) and out.exists() and out.samefile(source):
            raise UserError(f"{out} is the same file as the input and would replace it. Name another file.")
    classifier = Classifier(model, batch_size, precision)  # This takes seconds, so mistakes are reported before it.
    if clashes := {"prediction", *(f"probability_{name}" for name in classifier.labels)} & {*table.rows}:
        raise UserError(f'{source} has a column "{min(clashes)}", but the output needs this name. Rename it.')
    if classifier.problem_type == "regression" and (min_probability is not None or sort is not None):
        raise UserError("the predictions of a regression have no probabilities (--min-probability, --sort).")
    logits, truncated = _score(classifier, texts)
    rows = _add_answers(table.rows, classifier, logits, min_probability=min_probability, sort=sort)
    if out is None:
        print("\n".join(json_lines(rows)), flush=True)
    else:
        write_rows(rows, out)
    if truncated:
        proportion = f"{truncated:,} of {len(logits):,} rows ({truncated / len(logits):.1%})"
        log.warning("%s are longer than %d tokens and were truncated", proportion, settings.max_length)


def _read(source: list[str] | Path, names: list[str], file_format: FileFormat) -> Table:
    """Return the texts of the command line as a row, or all rows of a file with all of its columns."""
    if isinstance(source, Path):
        return concat([read_table(source, read_bytes(source), file_format)])
    if len(source) != len(names):
        raise UserError(f"The model needs a text for {' and '.join(names)}, but you gave {len(source)} texts.")
    return Table("The command line", pd.DataFrame([source], ["The command line"], names, dtype=object))


def _texts(table: Table, names: list[str]) -> pd.DataFrame:
    """Return the text columns. Raises UserError at the first row that has no text. A pair may have one empty text."""
    table.require(names)
    texts = pd.DataFrame({name: table.texts(name) for name in names})
    is_empty = texts.apply(lambda column: column.str.strip() == "").all(axis=1)
    if is_empty.any():
        raise UserError(f"{is_empty.idxmax()} has no text ({' and '.join(names)}). Fill it in.")
    return texts


def _score(classifier: Classifier, texts: pd.DataFrame) -> tuple[Logits, int]:
    """Return the logits, shape (rows, outputs), and how many rows were truncated."""
    # Tokens need more memory than texts, so they are made and scored in several parts.
    rows_at_once = _ROWS if classifier.settings.stride is None else _ROWS_OF_WINDOWS
    parts, truncated = [], 0
    for start in range(0, len(texts), rows_at_once):
        chunk = texts[start : start + rows_at_once]
        examples = classifier.tokenize([chunk[name].tolist() for name in chunk])
        parts.append(classifier.logits(examples))
        truncated += sum(examples["truncated"])
    return np.concatenate(parts), truncated


def _add_answers(
    rows: pd.DataFrame, classifier: Classifier, logits: Logits, *, min_probability: float | None, sort: str | None
) -> pd.DataFrame:
    """Add the predictions and their probabilities to rows. See `classify` for the other arguments."""
    labels, problem_type = classifier.labels, classifier.problem_type
    predictions = logits_to_predictions(problem_type, logits)
    probabilities = logits_to_probabilities(problem_type, logits)
    if probabilities is None:
        return rows.assign(prediction=predictions)
    if problem_type == "single_label_classification":
        names: list[Any] = [labels[number] for number in predictions]
    else:
        names = [list(compress(labels, flags)) for flags in predictions]
    columns = dict(zip(labels, probabilities.T.round(PROBABILITY_DECIMALS), strict=True))
    rows = rows.assign(prediction=names, **{f"probability_{label}": column for label, column in columns.items()})
    certainty = value_probabilities(probabilities, predictions).min(axis=1).round(PROBABILITY_DECIMALS)
    if min_probability is not None:
        rows.loc[certainty < min_probability, "prediction"] = None
    if sort == "uncertain":
        rows = rows.iloc[np.argsort(certainty, kind="stable")]
    return rows


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # With "| head", this command ends silently.
    parser = command_parser("classify", __doc__)
    option = parser.add_argument
    option("texts", metavar="TEXT", nargs="*", help="the text to classify, or the two texts of a pair")
    option("--file", metavar="FILE", type=Path, help="classify each row of this CSV, TSV, JSON (Lines) or Parquet file")
    add_format_options(parser)
    option("--out", metavar="FILE", type=Path, help="CSV, TSV, JSON Lines or Parquet file to write (default: print)")
    option("--min-probability", metavar="NUMBER", type=float, help="leave less probable predictions empty")
    option("--sort", choices=("uncertain",), help="start with the least probable predictions")
    option("--model", metavar="DIRECTORY", type=Path, default=CLASSIFIER, help="model to use (default: %(default)s)")
    option("--batch-size", metavar="NUMBER", type=at_least(1), default=32, help="rows per batch (default: %(default)s)")
    option("--precision", choices=get_args(Precision), help="default: that of the model's scores")
    arguments = parser.parse_args()
    if bool(arguments.texts) == bool(arguments.file):
        parser.error("Give either one or two texts, or --file.")
    if file := next(filter(os.path.isfile, arguments.texts), None):
        parser.error(f"{file} is a file. Use --file {shlex.quote(file)}.")
    if not 0 <= (arguments.min_probability or 0) <= 1:
        parser.error(f"--min-probability must be between 0 and 1, got {arguments.min_probability}.")
    with as_command():
        classify(
            arguments.model, arguments.file or arguments.texts, arguments.out, arguments.batch_size,
            precision=arguments.precision, file_format=chosen_format(arguments),
            min_probability=arguments.min_probability, sort=arguments.sort,
        )  # fmt: skip


if __name__ == "__main__":
    main()
