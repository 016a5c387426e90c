"""Start with your own data: look at it, and write it into params.yaml.

Examples:
  # Describe the file, copy it to data/custom, and edit the section "data":
  python -m pipeline.init reviews.csv
  # Only describe it, and show what would change in params.yaml:
  python -m pipeline.init reviews.csv --dry-run
  # Name the two columns of a pair, the label column, and the type of the task:
  python -m pipeline.init faq.csv --text question --text answer \\
      --label quality --problem-type regression
  # A directory with the files train, validation and test:
  python -m pipeline.init my_data/
  # Use files that are already in data/custom, without copying them:
  python -m pipeline.init data/custom
  # A dataset of the Hub, pinned to its newest commit:
  python -m pipeline.init hf://dair-ai/emotion
  # In a fresh clone, also remove the committed results of the example:
  python -m pipeline.init reviews.csv --fresh

More: docs/your_data.md
"""

from argparse import ArgumentParser, Namespace
from typing import get_args

from pipeline.cli import as_command, command_parser

from pipeline.core.task import ProblemType
from pipeline.tabular.file_format import add_format_options, chosen_format


def options_parser() -> ArgumentParser:
    parser = command_parser("init", __doc__)
    parser.add_argument(
        "source", metavar="SOURCE",
        help="a CSV, TSV, JSON, JSON Lines or Parquet file, a directory with train, validation and test files, or a "
        "dataset of the Hub: hf://OWNER/NAME, or hf://OWNER/NAME@REVISION with a branch, a tag or a commit",
    )  # fmt: skip
    parser.add_argument(
        "--text", metavar="COLUMN", action="append", default=[],
        help="the column with the texts; repeat it for pairs (default: chosen by its name, or else the column with the "
        "longest texts)",
    )  # fmt: skip
    parser.add_argument(
        "--label", metavar="COLUMN", action="append", default=[],
        help="the column with the labels; repeat it if each label has a column of 0 and 1 (default: chosen by its "
        "name, or else by its few distinct values)",
    )  # fmt: skip
    parser.add_argument(
        "--problem-type", choices=get_args(ProblemType),
        help="the type of the task, data.problem_type (default: inferred from the labels)",
    )  # fmt: skip
    add_format_options(parser, header=None)
    parser.add_argument(
        "--config", metavar="NAME",
        help="the configuration of the Hub dataset (default: its default one, or the only one)",
    )  # fmt: skip
    parser.add_argument(
        "--splits", metavar="SPLIT=NAME,...",
        help="which splits of the Hub dataset are train, validation and test, for example train=train,test=validation "
        "(default: the splits with these names)",
    )  # fmt: skip
    parser.add_argument("--name", help="what reports call the data (default: the name of the file or dataset)")
    parser.add_argument(
        "--force", action="store_true",
        help="remove everything in data/custom except hidden files, after the new data has been checked (default: stop "
        "if data/custom is not empty)",
    )  # fmt: skip
    parser.add_argument(
        "--fresh", action="store_true",
        help="also remove the committed results: dvc.lock and the files in metrics (default: keep them)",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only print, and write nothing (default: write)")
    return parser


if __name__ == "__main__":  # --help must not wait for the imports below.
    command_line = options_parser().parse_args()

import difflib
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.core.data_card import DataCard, read_data_card
from pipeline.core.messages import UserError, printable
from pipeline.core.output import write_text
from pipeline.core.paths import LOCK, PARAMS, RAW
from pipeline.core.task import Task, read_task
from pipeline.core.text import listing
from pipeline.core.yaml12 import load_yaml
from pipeline.evaluation.metrics import with_compared_metrics, with_selection_metric
from pipeline.onboarding.description import describe_columns, describe_labels
from pipeline.onboarding.header import second_header
from pipeline.onboarding.params_file import edit_values
from pipeline.onboarding.placement import copy_files, remove_results, require_room
from pipeline.onboarding.profile import ColumnProfile, binary_columns, choose_columns, profile
from pipeline.onboarding.trial import run_download
from pipeline.onboarding.user_data import CUSTOM, UserData, read_files, read_hub
from pipeline.params import Params, load_params, parse_params
from pipeline.sources.corpus import has_dropped_rows
from pipeline.sources.files import SPLIT_ALIASES, visible_entries

_SMALL_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
_HUB = "hf://"
_PRODIGY_ANSWERS = {"accept", "reject", "ignore"}
# What a user can do if an error of the trial run suggests a key that init sets itself.
_REMEDIES = {
    "data.problem_type": "To set data.problem_type, use --problem-type.",
    'data.split.type "fixed"': "Or write each split into its own file, and run init with their directory.",
    "data.id2label": 'init sets data.id2label to null. To use it, follow "Without init" in docs/your_data.md.',
}


def init(source: str, options: Namespace) -> None:
    """Describe the data, try it out in a temporary directory, and write it into the repository.

    Raises:
        UserError: The data cannot be used, an option does not apply to it, or files are in the way. Nothing is written
            then.
    """
    _require_matching_options(source, options)
    before = load_params()
    _print(f"Looking at {source}")
    if source.startswith(_HUB):
        dataset = source.removeprefix(_HUB).removeprefix("datasets/")  # The prefix of an address in pandas.
        data = read_hub(dataset, options.config, _parse_splits(options.splits))
    else:
        columns = [*options.text, *options.label]
        data = read_files(Path(source), chosen_format(options), columns, infer_header=options.header is None)
        if options.header is None and not data.values["header"]:
            message = "The first row looks like data. If it contains the names of the columns, use --header."
            if names := second_header(data.train):
                message = (
                    f"The second row repeats names of columns ({listing(names)}). If rows below the first one describe "
                    "the columns, as in exports from Qualtrics, remove them."
                )
            _print("", message)
    # Files in data/custom are used where they are.
    copies = {} if Path(source).resolve() == CUSTOM.resolve() else data.files
    if copies and not options.dry_run:
        require_room(source, copies, options.force)
    values = data.values | _column_values(source, data, options)
    if options.name:
        values["name"] = options.name
    original = PARAMS.read_text(encoding="utf-8")
    text = edit_values(original, {f"data.{key}": value for key, value in values.items()})
    parse_params(load_yaml(text))  # to report a value that is not allowed, such as a long --name
    with tempfile.TemporaryDirectory(prefix="init-") as temporary:
        task, card = _trial_run(Path(temporary), data, edit_values(text, {"data.on_missing": "drop"}))
        # The numbers of rows would not show this, because data.on_leakage can drop rows, too.
        drops_rows = has_dropped_rows(card.warnings)
        if drops_rows:
            _print("", "Some rows have no text or no label. They will be dropped (data.on_missing: drop).")
        stale = _stale_keys(before, task)
        for key in stale:
            _print("", f"{key} names classes or metrics that the data does not have, so it is set to null.")
        text = edit_values(text, {"data.on_missing": "drop" if drops_rows else "error", **dict.fromkeys(stale)})
    _print_diff(original, text)
    if options.dry_run:
        _print("", "Nothing was written, because of --dry-run.")
        return
    if copies:
        copy_files(copies)
    write_text(PARAMS, text)
    if options.fresh:
        remove_results()
    _print_next_steps(before, bool(data.files), bool(copies), options.fresh)


def _require_matching_options(source: str, options: Namespace) -> None:
    """Raise UserError if an option is for another type of source."""
    parser = options_parser()
    is_hub = source.startswith(_HUB)
    for name in ("delimiter", "encoding", "header") if is_hub else ("config", "splits"):
        if getattr(options, name) != parser.get_default(name):
            other_source = "files" if is_hub else "datasets of the Hub"
            option = "no-header" if name == "header" and not options.header else name
            raise UserError(f"--{option} is only for {other_source}. Leave it out.")


def _parse_splits(text: str | None) -> dict[str, str] | None:
    """Read the value of --splits, such as "train=train,test=validation"."""
    if text is None:
        return None
    pairs = [pair.partition("=") for pair in text.split(",")]
    splits = {split.strip(): name.strip() for split, _, name in pairs}
    if not all(splits.values()) or not splits.keys() <= {"train", "validation", "test"}:
        raise UserError(f'--splits must look like train=train,validation=dev,test=test, got "{text}".')
    return splits


def _print(*lines: str) -> None:
    """Print lines, which may contain text of the user's files."""
    for line in lines:
        print(printable(line), flush=True)


def _prodigy_warning(answers: set[str], columns: list[ColumnProfile], label_names: list[str]) -> str:
    """Return a warning if rows were rejected or ignored in Prodigy, according to the values of its column "answer"."""
    if not answers <= _PRODIGY_ANSWERS or answers <= {"accept"}:
        return ""
    if label_names == ["answer"]:
        return (
            'rows were ignored in Prodigy (column "answer"). Remove them from the file.' if "ignore" in answers else ""
        )
    if any(column.name == "label" and column.distinct == 1 for column in columns):
        return (
            '"label" has a single value, and "answer" says whether it is right (Prodigy). Use --label answer, so that '
            "rejected rows are the negative class, and remove ignored rows from the file."
        )
    return 'rows were rejected or ignored in Prodigy (column "answer"). Remove them from the file.'


def _column_values(source: str, data: UserData, options: Namespace) -> dict[str, Any]:
    """Describe the columns, choose the texts and the labels among them, and return the keys of `data` that follow."""
    columns = [profile(str(name), data.train[name]) for name in data.train]
    _print("", *describe_columns(columns), "")
    if warning := _prodigy_warning(set(map(str, data.train.get("answer", ()))), columns, options.label):
        _print(f"Warning: {warning}", "")
        # "answer" says whether the label is right, so it is a label only if the user says so.
        columns = [column for column in columns if column.name != "answer" or options.label]
    try:
        text_names, label_names = _choose_and_explain(columns, options)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    split_column = _find_split_column(data, [column for column in columns if column.name not in label_names])
    return {
        "text_column_names": text_names,
        "label_column_name": label_names[0] if len(label_names) == 1 else label_names,
        "problem_type": options.problem_type,
        # These keys may name columns or classes of the earlier data.
        "id2label": None,
        "split.type": "fixed" if split_column else "stratify",
        "split.column": split_column,
        "split.fold": None,
        "slice_columns": [],
    }


def _choose_and_explain(columns: Sequence[ColumnProfile], options: Namespace) -> tuple[list[str], list[str]]:
    """Choose the columns of the texts and of the labels, and print why. Raises UserError if no choice is possible."""
    texts, labels = choose_columns(columns, options.text, options.label)
    for option, choice in (("text", texts), ("label", labels)):
        quoted = " and ".join(f'"{name}"' for name in choice.columns)
        _print(f"{option.capitalize()}: {quoted}, because {choice.reason}. To choose another one, use --{option}.")
    binary = binary_columns(columns)
    if not options.label and labels.columns[0] in binary and len(binary) > 1:
        all_labels = " ".join(f"--label {shlex.quote(name)}" for name in binary)
        _print(f"If a text can have several labels, name each column: {all_labels}")
    for column in columns:
        if column.name in labels.columns and column.type == "date" and options.problem_type is None:
            raise UserError(
                f'the label column "{column.name}" contains dates. Name another one with --label, or set the type of '
                "the task with --problem-type."
            )
    return texts.columns, labels.columns


def _find_split_column(data: UserData, columns: Sequence[ColumnProfile]) -> str | None:
    """Return the column that contains the split of each row, if there is one that can be used."""
    column = next((column for column in columns if column.type == "split"), None)
    if column is None:
        return None
    values = data.train[column.name].dropna().str.strip().str.lower()
    if len(data.files) == 1 and not column.missing and "validation" in set(values.map(SPLIT_ALIASES)):
        _print(f'Split: "{column.name}", because it contains the split of each row (data.split.type: fixed).')
        return column.name
    _print(
        f'Warning: column "{column.name}" contains names of splits, but it is not used. To keep these splits, write '
        "each one into its own file, and run init with their directory."
    )
    return None


def _trial_run(directory: Path, data: UserData, text: str) -> tuple[Task, DataCard]:
    """Run the stage download on the data in a temporary directory, and describe and return the result.

    Args:
        text: The new text of params.yaml.
    """
    for target, path in data.files.items():
        (directory / target).parent.mkdir(parents=True, exist_ok=True)
        (directory / target).symlink_to(path.absolute())
    write_text(directory / PARAMS, text)

    def with_sources(message: str) -> str:
        for target, path in data.files.items():
            message = message.replace(str(target), str(path))
        return message

    try:
        log = run_download(directory)
    except UserError as error:
        remedies = [remedy for key, remedy in _REMEDIES.items() if key in str(error)]
        raise UserError(" ".join([with_sources(str(error)), *remedies])) from None
    task, card = read_task(directory / RAW, "download"), read_data_card(directory / RAW)
    _print("", "The download stage of a run will say:", *(f"  {with_sources(line)}" for line in log))
    _print("", *describe_labels(task, card))
    return task, card


def _stale_keys(params: Params, task: Task) -> list[str]:
    """Return the keys outside of `data` that name classes or metrics which the new task does not have."""
    keys = []
    weights = params.train.class_weights
    names = weights if isinstance(weights, dict) else []
    if weights is not None and not (task.labels and set(names) <= set(task.labels)):
        keys.append("train.class_weights")
    try:
        with_selection_metric(task, params.train.metric_for_best_model)
    except UserError:
        keys.append("train.metric_for_best_model")
    try:
        with_compared_metrics(task, params.evaluate.metrics)
    except UserError:
        keys.append("evaluate.metrics")
    return keys


def _print_diff(before: str, after: str) -> None:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), str(PARAMS), str(PARAMS), n=1, lineterm="")
    _print("", *(list(lines) or [f"{PARAMS} stays as it is."]))


def _print_next_steps(before: Params, has_files: bool, has_copies: bool, fresh: bool) -> None:
    if fresh:
        _print("", "Removed dvc.lock and the committed results in metrics.")
    elif LOCK.exists() and before.data.task not in ("custom", "hub"):
        _print("", "The committed results of the example are still here. With --fresh, init removes them.")
    if not has_files and visible_entries(CUSTOM):
        _print("", f"The files in {CUSTOM} are not used any more.")
    if has_files and not has_copies:
        _print(
            "",
            f'If files in {CUSTOM} are new or have changed, run "dvc add {CUSTOM}/FILE && git add {CUSTOM}" for each '
            f'one first. For links and small files, "git add {CUSTOM}" is enough.',
        )
    add = f"git add {CUSTOM} && " if has_copies else ""
    _print("", "Next:", f'  {add}git commit -am "My data"', "  dvc repro")
    checkpoint = before.model.checkpoint
    _print("", f"This fine-tunes {checkpoint} with a learning rate of {before.train.lr:g}, as params.yaml says.")
    if checkpoint != _SMALL_MODEL:
        _print(
            "For a first look, a small model is three to seven times as fast:",
            f"  dvc exp run -S model.checkpoint={_SMALL_MODEL} -S train.lr=1e-4",
        )  # fmt: skip


def main(options: Namespace) -> None:
    with as_command():
        init(options.source, options)


if __name__ == "__main__":
    main(command_line)
