"""Classify new texts with a trained model.

TEXT is one text, or two for a model of pairs. A file has a column for each text that the model reads, and may have
others, which are kept. Each row gets a prediction, and the probability of each class or label. The rows stay in order.
Several processes share the rows of a file: torchrun --nproc-per-node 2 -m pipeline.classify --file ...
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pipeline.cli import as_command, command_parser
from pipeline.core.messages import UserError, log
from pipeline.core.output import require_different_files, require_file_path
from pipeline.core.paths import CLASSIFIER
from pipeline.core.tables import from_numpy
from pipeline.evaluation.metrics import predicted, probabilities
from pipeline.modeling import distributed
from pipeline.modeling.settings import InferenceSettings, read_settings
from pipeline.params import Precision
from pipeline.serving.classifier import Classifier
from pipeline.tabular.reading import (
    Batch,
    Columns,
    RowError,
    raise_row_error,
    read_file,
    read_standard_input,
    require_known_format,
    texts,
)
from pipeline.tabular.writing import Write, writing_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.evaluation.metrics import Floats

_STANDARD = Path("-")  # input: JSON lines
_TIMEOUT = 600  # seconds until a process gives up on another one that does not answer


def classify(
    model: Path,
    given: list[str] | Path,
    out: Path | None,
    skip: bool,
    batch_size: int,
    precision: Literal["auto", Precision] | None = None,
) -> None:
    """Write the rows of a file, or one row of texts, with the model's answers.

    out: a file, or standard output as JSON lines. skip: rows that cannot be used go to a file of their own.
    batch_size: rows of a forward pass on a GPU. precision: None is the one in which the model's scores were measured.
    Raises UserError for such a row where not `skip`, for what else is wrong with the file, and where the model does not
    load.
    """
    errors = _errors_file(given, out) if skip else None
    _require_outputs(given, [path for path in (out, errors) if path is not None])
    settings, count, truncated = read_settings(model), 0, 0
    rows = _rows(given, settings.text_columns)
    with _faults(errors) as refused, _writing(out) as write:
        classifier = Classifier(model, settings, precision)
        for batch in rows(refused):
            usable, of_texts = _usable(batch, settings.text_columns, refused)
            if not usable.numbers:
                continue
            scored = classifier.score(of_texts, batch_size, f"rows {count + 1:,} to {count + len(usable.numbers):,}")
            write({**usable.columns, **_answers(settings, scored.logits, usable)})
            count, truncated = count + len(usable.numbers), truncated + scored.truncated
        if not count:
            do = "run without --on-error skip to see why" if skip else "add some"
            raise UserError(f"{_name(given)} has no row that can be used; {do}")
    if truncated:
        log.warning("%d of %d rows are longer than %d tokens, and were cut", truncated, count, settings.max_length)


def _rows(given: list[str] | Path, names: list[str]) -> Callable[[Callable[[RowError], None]], Iterator[Batch]]:
    """How to read the rows. Raises UserError or PermissionError where there is no such file."""
    if isinstance(given, list):
        if len(given) != len(names):
            reads = f"a pair of texts, {names[0]} and {names[1]}" if len(names) == 2 else f"one text, {names[0]}"
            raise UserError(f"this model reads {reads}; {len(given)} given")
        batch = Batch(Path(_name(given)), "row", [0], {name: [text] for name, text in zip(names, given, strict=True)})
        return lambda refused: iter([batch])
    columns = Columns(names, keep_rest=True, remedy=f"the model reads {' and '.join(names)}; rename a column")
    if given == _STANDARD:
        return lambda refused: read_standard_input(columns, refused)
    if not given.is_file():
        raise UserError(f"{given} is not {'a file' if given.exists() else 'there'}; name a file of rows")
    require_known_format(given)
    given.open("rb").close()  # a file that may not be read fails before the model is loaded
    return lambda refused: read_file(given, columns, refused)


def _name(given: list[str] | Path) -> str:
    if isinstance(given, list):
        return "command line"
    return "standard input" if given == _STANDARD else str(given)


def _errors_file(given: list[str] | Path, out: Path | None) -> Path:
    beside = out or (Path("standard_input") if isinstance(given, list) or given == _STANDARD else given)
    return beside.with_name(f"{beside.stem}.errors.jsonl")


def _require_outputs(given: list[str] | Path, outputs: list[Path]) -> None:
    """Raise UserError if an output would replace a directory, the input or the other output."""
    for path in outputs:
        require_file_path(path)
    if isinstance(given, list):
        require_different_files(outputs)
    else:
        require_different_files([Path("/dev/stdin") if given == _STANDARD else given, *outputs])


def _writing(path: Path | None) -> AbstractContextManager[Write]:
    """As `writing_rows`. Of several processes each reads all rows and scores its share, and rank 0 alone writes."""
    return writing_rows(path) if distributed.rank() == 0 else nullcontext(lambda columns: None)


@contextmanager
def _faults(path: Path | None) -> Iterator[Callable[[RowError], None]]:
    """Yield what to do with a row that cannot be used: stop, or write it to the file at `path`."""
    if path is None:
        yield raise_row_error
        return
    count = 0
    with _writing(path) as write:

        def refused(fault: RowError) -> None:
            nonlocal count
            count += 1
            write({name: [value] for name, value in fault._asdict().items()})

        yield refused
    if count:
        log.warning("%d %s cannot be used: %s", count, "row" if count == 1 else "rows", path)


def _usable(batch: Batch, names: list[str], refused: Callable[[RowError], None]) -> tuple[Batch, list["pa.Array"]]:
    """The rows that have all texts, and these texts by column."""
    faulty: dict[str, RowError] = {}

    def note(fault: RowError) -> None:
        faulty.setdefault(fault.where, fault)

    of_texts = [texts(batch, name, note) for name in names]
    for name, column in zip(names, of_texts, strict=True):
        for row, text in enumerate(column.to_pylist()):
            if not text.strip():
                note(batch.error(row, f"has no {name}; fill it in"))
    if not faulty:
        return batch, of_texts
    for fault in faulty.values():
        refused(fault)
    kept = [row for row in range(len(batch.numbers)) if batch.where(row) not in faulty]
    usable = batch.take(kept)
    return usable, [texts(usable, name) for name in names]


def _answers(settings: InferenceSettings, logits: "Floats", rows: Batch) -> dict[str, Any]:
    """The columns that are written beside the rows' own. Raises UserError where these have the same names."""
    values, labels = predicted(settings.problem_type, logits), settings.labels
    answers: dict[str, Any] = {"prediction": from_numpy(values)}
    if settings.problem_type != "regression":
        of_class = probabilities(settings.problem_type, logits)
        answers |= {f"probability_{label}": from_numpy(of_class[:, at]) for at, label in enumerate(labels)}
    if settings.problem_type == "single_label_classification":
        answers["prediction"] = [labels[value] for value in values]
    elif settings.problem_type == "multi_label_classification":
        answers["prediction"] = [[label for label, has in zip(labels, row, strict=True) if has] for row in values]
    if taken := next((name for name in answers if name in rows.columns), None):
        raise UserError(f"{rows.path} has a column {taken}, which is also the name of an answer; rename it")
    return answers


def main() -> None:
    parser = command_parser("classify", __doc__)
    parser.add_argument("texts", metavar="TEXT", nargs="*")
    parser.add_argument("--file", type=Path, help="csv, tsv, json, jsonl or parquet; -: standard input, JSON lines")
    parser.add_argument("--out", type=Path, help="csv, tsv, jsonl or parquet; default: standard output, JSON lines")
    parser.add_argument(
        "--model", type=Path, default=CLASSIFIER, help=f"what stage train has written; default: {CLASSIFIER}"
    )
    parser.add_argument(
        "--on-error", choices=("stop", "skip"), default="stop",
        help="skip: write rows that cannot be used to a file of their own, named after --out or the input, and go on",
    )  # fmt: skip
    parser.add_argument("--batch-size", type=int, default=64, help="rows of a forward pass on a GPU; default: 64")
    parser.add_argument(
        "--precision", choices=("auto", *get_args(Precision)),
        help="default: the one in which the model's scores were measured, if this machine has it; auto: its fastest",
    )  # fmt: skip
    arguments = parser.parse_args()
    if bool(arguments.texts) == bool(arguments.file):
        parser.error("give texts, or --file")
    if arguments.out is not None and not arguments.out.name:
        parser.error("--out is empty; name a file")
    if arguments.batch_size < 1:
        parser.error(f"--batch-size is {arguments.batch_size}; it must be 1 or more")
    if arguments.file == _STANDARD and distributed.world_size() > 1:
        parser.error("several processes cannot share standard input; name a file")
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` that has read enough is no error
    with as_command(), distributed.process_group(_TIMEOUT):
        skip = arguments.on_error == "skip"
        classify(
            arguments.model, arguments.file or arguments.texts, arguments.out, skip, arguments.batch_size,
            arguments.precision,
        )  # fmt: skip


if __name__ == "__main__":
    main()
