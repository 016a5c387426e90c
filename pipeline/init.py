"""Start with your own data: look at it, and write it into params.yaml.

Examples:
  # Show the file, copy it to data/custom, and edit the section "data":
  python -m pipeline.init reviews.csv
  # Only show it, and what would change in params.yaml:
  python -m pipeline.init reviews.csv --dry-run
  # Name the two columns of a pair, and the label column:
  python -m pipeline.init faq.csv --text question --text answer --label quality
  # A directory with the files train, validation and test:
  python -m pipeline.init my_data/
  # A dataset of the Hub, pinned to its newest commit:
  python -m pipeline.init hf://dair-ai/emotion
  # In a fresh clone, also remove the committed results of the example:
  python -m pipeline.init reviews.csv --fresh

More: docs/your_data.md
"""

import difflib
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pipeline.cli import as_command, command_parser
from pipeline.core.messages import UserError, printable
from pipeline.core.output import write_text
from pipeline.core.paths import LOCK, METRICS_DIR, PARAMS
from pipeline.core.task import TRAIN, ProblemType
from pipeline.core.text import listing
from pipeline.core.yaml12 import load_yaml
from pipeline.experiments.launch import git
from pipeline.params import load_params, parse_params
from pipeline.sources.columns import choose_labels, choose_split, choose_texts, describe_columns, read_columns
from pipeline.sources.corpus import make_corpus
from pipeline.sources.examination import examine, prepare
from pipeline.sources.fetch import pin_dataset
from pipeline.sources.file_format import DEFAULT_FORMAT, add_format_options, chosen_format
from pipeline.sources.files import SPLITS, find_files, read_files
from pipeline.sources.hub_data import load_tables
from pipeline.sources.params_file import edit_values
from pipeline.sources.placement import CUSTOM, place_files
from pipeline.sources.tables import Table, data_stem

_HUB = "hf://"


def init(source: str, options: Namespace) -> None:
    """Show the data, and write it into the repository.

    Raises:
        UserError: The data cannot be used, or files are in the way. Nothing is written then.
    """
    load_params()  # An error that params.yaml already has is not about the new data.
    is_hub = source.startswith(_HUB)
    tables, values = _read_hub(source, options) if is_hub else _read_files(Path(source), options)
    values |= _choose_columns(tables, options)
    original = PARAMS.read_text(encoding="utf-8")
    text = edit_values(original, {f"data.{key}": value for key, value in values.items()})
    params = parse_params(load_yaml(text)).data
    corpus = make_corpus(tables, params, {})
    count = sum(map(len, corpus.splits.values()))
    if count == sum(len(table.rows) for table in tables.values()):
        text = edit_values(text, {"data.on_missing": "error"})
    examination = examine(prepare(corpus, params))
    _print("", *examination.lines, "", *(f"warning: {warning}" for warning in examination.card.warnings), "")
    diff = difflib.unified_diff(original.splitlines(), text.splitlines(), str(PARAMS), str(PARAMS), n=0, lineterm="")
    _print(*(line for line in diff if not line.startswith("@@")), "")
    if options.dry_run:
        return _print("Nothing was written, because of --dry-run.")
    is_in_place = not is_hub and Path(source).resolve() == CUSTOM.resolve()
    if not (is_hub or is_in_place):
        place_files(Path(source), options.force)
    if options.fresh:
        _remove_results()
    write_text(PARAMS, text)
    if is_in_place:
        _print(f'If a file in {CUSTOM} is new or has changed, first run "dvc add" on it, to keep it out of git.')
    _print("Next:", f'  {"" if is_hub else f"git add {CUSTOM} && "}git commit -am "My data"', "  dvc repro")
    more_epochs = " -S train.epochs=20" if count < 1000 else ""
    _print("A small model gives you a first result in a fraction of the time. Instead of dvc repro:")
    _print(f"  dvc exp run -S model.checkpoint=sentence-transformers/all-MiniLM-L6-v2 -S train.lr=1e-4{more_epochs}")
    if count < 1000:
        _print(f"With {count} rows, the test score says little. Then try python -m pipeline.folds (docs/folds.md).")


def _read_hub(source: str, options: Namespace) -> tuple[dict[str, Table], dict[str, Any]]:
    """Return the tables of a dataset of the Hub, and the keys of the section `data` that say where it is."""
    if chosen_format(options) != DEFAULT_FORMAT:
        raise UserError("--delimiter, --encoding and --no-header are only for files. Leave them out.")
    dataset = source.removeprefix(_HUB).removeprefix("datasets/")  # The prefix of an address in pandas.
    if not re.search("@[0-9a-f]{40}$", dataset):
        dataset = pin_dataset(dataset)
    splits = dict(pair.partition("=")[::2] for pair in options.splits.split(",")) if options.splits else None
    if splits and not {TRAIN} <= splits.keys() <= {*SPLITS}:
        raise UserError(f'--splits must look like train=NAME,validation=NAME,test=NAME, got "{options.splits}".')
    place = {"task": "hub", "name": options.name, "dataset": dataset, "config": options.config, "splits": splits}
    return load_tables(dataset, options.config, splits), place | DEFAULT_FORMAT._asdict()


def _read_files(path: Path, options: Namespace) -> tuple[dict[str, Table], dict[str, Any]]:
    """Return the tables of a file or a directory, and the keys of the section `data` that say where they will be."""
    if options.config or options.splits:
        raise UserError("--config and --splits are only for datasets of the Hub. Leave them out.")
    if not path.exists():
        raise UserError(f"{path} does not exist. For a dataset of the Hub, write {_HUB}OWNER/NAME.")
    file_format = chosen_format(options)
    tables, _ = read_files(find_files(path) if path.is_dir() else {TRAIN: [path]}, file_format)
    place = {"task": "custom", "name": options.name or data_stem(path.absolute())[:80], "directory": str(CUSTOM)}
    return tables, {**place, **file_format._asdict(), "dataset": None, "config": None, "splits": None}


def _choose_columns(tables: Mapping[str, Table], options: Namespace) -> dict[str, Any]:
    """Show and choose the columns, and return the keys of the section `data` that depend on them."""
    columns = read_columns(tables[TRAIN])
    _print(*describe_columns(columns), "")
    tables[TRAIN].require([*options.text, *options.label])
    free = [column for column in columns if column.name not in (*options.text, *options.label)]
    split, not_used = choose_split(free) if len(tables) == 1 else (None, [])
    free = [column for column in free if column.name not in (split, *not_used)]
    labels = options.label or _show_choice("label", choose_labels(free))
    free = [column for column in free if column.name not in labels]
    texts = options.text or _show_choice("text", choose_texts(free))
    if more := [column.name for column in free if column.name not in texts]:
        hint = " If the model should read two texts, name both: --text NAME --text NAME." if len(texts) == 1 else ""
        _print(f"Not used: {listing(more)}.{hint}")
    if split:
        _print(f'Split: "{split}", because it has the split of each row (data.split.type: fixed).')
    if not_used:
        _print(f"Not used: {listing(not_used)}. The values are not train, validation and perhaps test in every row.")
    return {
        "text_column_names": texts, "label_column_name": labels[0] if len(labels) == 1 else labels,
        "label_separator": options.separator, "problem_type": options.problem_type, "id2label": None,
        "split.type": "fixed" if split else "stratify", "split.column": split, "split.fold": None,
        "on_missing": "drop", "slice_columns": [], "corrections": "data/corrections.csv",
    }  # fmt: skip


def _show_choice(purpose: str, names: list[str]) -> list[str]:
    """Print which columns were chosen, and return them."""
    columns = '" and "'.join(names)
    _print(f'{purpose.capitalize()}: "{columns}". Change it with --{purpose}.')
    return names


def _print(*lines: str) -> None:
    """Print lines, which may contain text of the user's files."""
    print(*map(printable, lines), sep="\n", flush=True)


def _remove_results() -> None:
    """Remove dvc.lock, the report, the model card, and the files in metrics that git tracks."""
    tracked = git("ls-files", "-z", "--", METRICS_DIR).split("\0")
    results = {LOCK, METRICS_DIR / "report.html", METRICS_DIR / "model_card.md", *map(Path, filter(None, tracked))}
    for path in results - {METRICS_DIR / ".gitignore"}:
        path.unlink(missing_ok=True)


def options_parser() -> ArgumentParser:
    parser = command_parser("init", __doc__)
    parser.add_argument(
        "source", metavar="SOURCE",
        help="a CSV, TSV, JSON, JSON Lines or Parquet file, a directory with train, validation and test files, or a "
        "dataset of the Hub: hf://OWNER/NAME, or hf://OWNER/NAME@REVISION with a branch, a tag or a commit",
    )  # fmt: skip
    parser.add_argument(
        "--text", metavar="COLUMN", action="append", default=[],
        help="the column with the texts; repeat it for pairs (default: chosen by its name, or by its long texts)",
    )  # fmt: skip
    parser.add_argument(
        "--label", metavar="COLUMN", action="append", default=[],
        help="the column with the labels; repeat it if each label has a column of 0 and 1 (default: chosen by its "
        "name, or by its few distinct values)",
    )  # fmt: skip
    parser.add_argument("--separator", metavar="TEXT", help="what separates several labels in a cell (default: none)")
    problem_type = "data.problem_type (default: inferred from the labels)"
    parser.add_argument("--problem-type", choices=get_args(ProblemType), help=problem_type)
    add_format_options(parser)
    parser.add_argument("--config", metavar="NAME", help="the configuration of the Hub dataset (default: the only one)")
    parser.add_argument(
        "--splits", metavar="SPLIT=NAME,...",
        help="which splits of the Hub dataset are train, validation and test, for example train=train,test=validation "
        "(default: the splits with these names)",
    )  # fmt: skip
    parser.add_argument("--name", help="what reports call the data (default: the name of the file or dataset)")
    force = "replace everything in data/custom except hidden files (default: stop if data/custom is not empty)"
    parser.add_argument("--force", action="store_true", help=force)
    parser.add_argument("--fresh", action="store_true", help="also remove the committed results (default: keep them)")
    parser.add_argument("--dry-run", action="store_true", help="only print, and write nothing (default: write)")
    return parser


def main() -> None:
    options = options_parser().parse_args()
    with as_command():
        init(options.source, options)


if __name__ == "__main__":
    main()
