"""Predict the labels of new texts with the fine-tuned model.

Examples:
  # One text, or the two texts of a pair:
  python -m pipeline.classify "It rained on Monday." "On Monday, it rained."
  # A file with a column for each text, named as in the training data:
  python -m pipeline.classify --file new.csv --out answered.csv
  # Skip rows that cannot be used, and list them in answered.errors.jsonl:
  python -m pipeline.classify --file new.csv --out answered.csv --on-error skip
  # Two processes, each of which scores a part of the rows:
  torchrun --nproc-per-node 2 -m pipeline.classify --file new.csv --out out.csv

More: docs/use_the_model.md
"""

from argparse import ArgumentParser
from pathlib import Path
from typing import get_args

from pipeline.cli import allow_closed_output, as_command, command_parser
from pipeline.core.paths import CLASSIFIER
from pipeline.params import Precision
from pipeline.tabular.file_format import DEFAULT_FORMAT, FileFormat, add_format_options, chosen_format


def options_parser() -> ArgumentParser:
    parser = command_parser("classify", __doc__)
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="the text to classify, or the two texts of a pair")
    parser.add_argument(
        "--file", metavar="FILE", type=Path,
        help="classify the rows of this CSV, TSV, JSON, JSON Lines or Parquet file, or of JSON Lines on standard input "
        "(-), instead of TEXT; other columns are copied to the output",
    )  # fmt: skip
    add_format_options(parser)
    parser.add_argument(
        "--out", metavar="FILE", type=Path,
        help="write the predictions to this CSV, TSV, JSON Lines or Parquet file (default: JSON Lines on standard "
        "output)",
    )  # fmt: skip
    parser.add_argument(
        "--model", metavar="DIRECTORY", type=Path, default=CLASSIFIER,
        help="use the model that the train stage wrote to this directory (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--on-error", choices=("stop", "skip"), default="stop",
        help="what to do if a row cannot be used: stop, or write the row to a .errors.jsonl file, named after --out or "
        "the input, and continue with the next one (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--batch-size", metavar="NUMBER", type=int, default=32,
        help="number of rows per forward pass; lower it if memory runs out (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--precision", choices=("auto", *get_args(Precision)),
        help="precision to compute in; auto is the fastest one on this machine (default: the precision in which the "
        "scores of the model were measured, if this machine supports it)",
    )  # fmt: skip
    return parser


if __name__ == "__main__":  # --help must not wait for the imports below.
    options_parser().parse_args()

import shlex
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Literal

import pyarrow as pa
from numpy.typing import NDArray

from pipeline.core.messages import UserError, log
from pipeline.core.output import require_file_path
from pipeline.evaluation.metrics import PROBABILITY_DECIMALS, logits_to_predictions, logits_to_probabilities
from pipeline.modeling import distributed
from pipeline.modeling.classifier import Classifier
from pipeline.tabular.opening import OnError, RowError, data_stem, raise_row_error
from pipeline.tabular.reading import Batch, ColumnSelection, check_file, read_file, read_standard_input
from pipeline.tabular.writing import Write, column_types, writing_rows

_STANDARD_INPUT = Path("-")
_PREDICTION_TYPES = {
    "single_label_classification": pa.string(),
    "multi_label_classification": pa.list_(pa.string()),  # The first rows may have no labels.
    "regression": pa.float64(),
}


def classify(
    model: Path,
    source: list[str] | Path,
    out: Path | None,
    skip_errors: bool,
    batch_size: int,
    precision: Literal["auto", Precision] | None = None,
    file_format: FileFormat = DEFAULT_FORMAT,
) -> None:
    """Write the rows of a file, or a single row of texts, with the predictions of the model.

    Args:
        source: A file, "-" for JSON lines on standard input, or the texts of a single row.
        out: The file to write. None writes JSON lines to standard output.
        skip_errors: Whether to continue after a row that cannot be used. Such rows are written to a file of errors.
        batch_size: The number of rows per forward pass.
        precision: None means the precision in which the scores of the model were measured.
        file_format: How the file is written.

    Raises:
        UserError: The model does not load, the input cannot be read, or a row cannot be used and is not skipped.
    """
    # Report a mistake at once, because loading the model takes seconds.
    if isinstance(source, Path) and source != _STANDARD_INPUT:
        check_file(source, file_format)
    errors_path = _errors_path(source, out) if skip_errors and isinstance(source, Path) else None
    _require_outputs(source, [path for path in (out, errors_path) if path])
    classifier = Classifier(model, batch_size, precision)
    settings = classifier.settings
    row_errors: list[RowError] = []
    on_error: OnError = row_errors.append if skip_errors else raise_row_error
    classified = truncated = 0
    with _writing(out) as write:
        for batch in _read(source, settings.text_columns, on_error, file_format):
            rows, texts = _usable_rows(batch, settings.text_columns, on_error)
            if rows.numbers:
                logits, batch_truncated = classifier.score(texts)
                types = column_types(rows.schema) | {"prediction": _PREDICTION_TYPES[classifier.problem_type]}
                write({**rows.columns, **_answers(classifier, logits, rows)}, types)
                classified += len(rows.numbers)
                truncated += batch_truncated
        if not classified:
            remedy = "Run without --on-error skip to see why." if skip_errors else "Add rows to it."
            raise UserError(f"The input has no usable rows. {remedy}")
        if errors_path:
            with _writing(errors_path) as write_errors:
                errors = {name: [getattr(error, name) for error in row_errors] for name in ("where", "why", "row")}
                write_errors(errors, {})
    if row_errors:
        skipped = "1 row was" if len(row_errors) == 1 else f"{len(row_errors):,} rows were"
        log.warning("%s skipped. See %s.", skipped, errors_path)
    if truncated:
        log.warning(
            "%s of %s rows (%.1f%%) are longer than %d tokens and were truncated",
            f"{truncated:,}", f"{classified:,}", 100 * truncated / classified, settings.max_length,
        )  # fmt: skip


def _read(source: list[str] | Path, names: list[str], on_error: OnError, file_format: FileFormat) -> Iterable[Batch]:
    if isinstance(source, list):
        if len(source) != len(names):
            needed = "two texts" if len(names) == 2 else "one text"
            raise UserError(f"The model needs {needed} ({' and '.join(names)}), but you gave {len(source)}.")
        row = {name: [text] for name, text in zip(names, source, strict=True)}
        if empty := [name for name, [text] in row.items() if not text.strip()]:
            raise UserError(f'The text for "{empty[0]}" is empty. Pass a text.')
        return [Batch(Path("command line"), "row", [0], row)]
    columns = ColumnSelection(names, keep_rest=True, remedy=f"The model reads {' and '.join(names)}. Rename a column.")
    if source == _STANDARD_INPUT:
        return read_standard_input(columns, on_error, file_format)
    return read_file(source, columns, on_error, file_format)


def _errors_path(source: Path, out: Path | None) -> Path:
    path = out or (Path("standard_input") if source == _STANDARD_INPUT else source)
    return path.parent / f"{data_stem(path)}.errors.jsonl"


def _require_outputs(source: list[str] | Path, outputs: list[Path]) -> None:
    """Raise UserError if an output would replace a directory or the input."""
    for path in outputs:
        require_file_path(path)
        if isinstance(source, Path):
            file = Path("/dev/stdin") if source == _STANDARD_INPUT else source
            if file.exists() and path.exists() and path.samefile(file):  # also through a link
                raise UserError(f"{path} is the same file as the input and would replace it. Name another file.")


def _writing(path: Path | None) -> AbstractContextManager[Write]:
    """Return `writing_rows` on rank 0. The other processes score a part of the rows, but do not write."""
    return writing_rows(path) if distributed.rank() == 0 else nullcontext(lambda columns, types: None)


def _usable_rows(batch: Batch, names: list[str], on_error: OnError) -> tuple[Batch, list[list[str]]]:
    """Return the rows that have every text, and their texts by column. Other rows go to `on_error`."""
    usable: list[int] = []
    texts: list[list[str]] = []
    for row in range(len(batch.numbers)):
        try:
            texts.append([_require_text(batch, row, name) for name in names])
            usable.append(row)
        except RowError as error:
            on_error(error)
    return batch.take(usable), [list(column) for column in zip(*texts, strict=True)]


def _require_text(batch: Batch, row: int, name: str) -> str:
    text = batch.text(row, name)
    if not text.strip():
        raise batch.error(row, f'has no text in column "{name}". Fill it in.')
    return text


def _answers(classifier: Classifier, logits: NDArray[Any], rows: Batch) -> dict[str, Any]:
    """Return the columns with the predictions. Raises UserError if the rows have a column with the same name."""
    problem_type, labels = classifier.problem_type, classifier.labels
    predictions = logits_to_predictions(problem_type, logits).tolist()
    if problem_type == "single_label_classification":
        predictions = [labels[number] for number in predictions]
    elif problem_type == "multi_label_classification":
        predictions = [[label for label, flag in zip(labels, flags, strict=True) if flag] for flags in predictions]
    answers = {"prediction": predictions}
    probabilities = logits_to_probabilities(problem_type, logits)
    if probabilities is not None:
        columns = zip(labels, probabilities.T.round(PROBABILITY_DECIMALS).tolist(), strict=True)
        answers |= {f"probability_{label}": column for label, column in columns}
    if clash := next((name for name in answers if name in rows.columns), None):
        raise UserError(f'{rows.path} has a column "{clash}", but the output needs this name. Rename the column.')
    return answers


def main() -> None:
    parser = options_parser()
    arguments = parser.parse_args()
    if bool(arguments.texts) == bool(arguments.file):
        parser.error("Give either one or two texts, or --file.")
    for text in arguments.texts:
        with suppress(OSError):  # A long text cannot be a path.
            if Path(text).is_file():
                parser.error(f"{text} is a file. Use --file {shlex.quote(text)}.")
    if arguments.batch_size < 1:
        parser.error(f"--batch-size must be at least 1, got {arguments.batch_size}.")
    if arguments.file == _STANDARD_INPUT and distributed.world_size() > 1:
        parser.error("--file must name a file if several processes share its rows, got - (standard input).")
    allow_closed_output()
    with as_command(), distributed.process_group():
        classify(
            arguments.model, arguments.file or arguments.texts, arguments.out, arguments.on_error == "skip",
            arguments.batch_size, arguments.precision, chosen_format(arguments),
        )  # fmt: skip


if __name__ == "__main__":
    main()
