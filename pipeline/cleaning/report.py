"""Write what `python -m pipeline.suspects` finds: suspects.csv, to be edited, and suspects.html, to be read."""

import csv
from pathlib import Path

import pandas as pd

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output
from pipeline.core.task import Task
from pipeline.core.text import quoted
from pipeline.reporting.mistakes import pieces
from pipeline.reporting.templates import TEMPLATES
from pipeline.tabular.opening import open_bytes
from pipeline.tabular.reading import ColumnSelection, read_file

_ROWS_ON_PAGE = 50
_VERDICT = "verdict"
_COLUMNS = (_VERDICT, "label", "prediction", "probability", "loss", "place", "idx", "contradicts")


def require_writable(path: Path, task: Task) -> None:
    """Raise UserError if suspects.csv cannot hold the data of a task, or already has verdicts."""
    for name in task.text_columns:
        if name in _COLUMNS or name.startswith("nearest_"):
            raise UserError(f'suspects.csv has a column "{name}" of its own. Rename the text column in your data.')
    if task.problem_type == "multi_label_classification":
        for name in task.labels:
            if "|" in name:
                raise UserError(
                    f'the label {quoted(name)} contains "|", which separates the labels of a row in suspects.csv. '
                    "Rename the label in your data or in data.id2label."
                )
    if path.exists() and len(read_verdicts(path, [])):
        raise UserError(f"{path} has verdicts, which would be lost. Apply them with --apply, or move the file.")


def write_suspects(path: Path, suspects: pd.DataFrame) -> None:
    """Write the suspects with an empty column for the user's verdicts."""
    rows = suspects.replace("\0", " ", regex=True)  # A CSV file cannot contain this character.
    rows.insert(0, _VERDICT, "")
    with atomic_output(path) as draft:
        # Without the byte order mark, Excel reads UTF-8 as another encoding.
        rows.to_csv(draft, index=False, encoding="utf-8-sig", quoting=csv.QUOTE_ALL, lineterminator="\n")


def read_verdicts(path: Path, text_columns: list[str]) -> pd.DataFrame:
    """Return the rows with a verdict from a file that `write_suspects` has written and a person has edited.

    The columns are "verdict", "idx" (a number) and the text columns.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        with open_bytes(path) as file:
            file.read().decode()
    except UnicodeDecodeError:
        raise UserError(f'{path} is not UTF-8. In your spreadsheet program, save it as "CSV UTF-8".') from None
    remedy = "Use a suspects.csv that python -m pipeline.suspects has written."
    names = [_VERDICT, "idx", *text_columns]
    rows = pd.DataFrame(columns=names, dtype=str)
    # The names of the columns in a CSV file have no spaces around them.
    for batch in read_file(path, ColumnSelection([name.strip() for name in names], remedy=remedy)):
        texts = {name: [batch.text(row, name.strip()) for row in range(len(batch.numbers))] for name in names}
        rows = pd.concat([rows, pd.DataFrame(texts)])
    rows = rows[rows[_VERDICT].str.strip() != ""]
    idx = rows["idx"].str.strip().str.removesuffix(".0")  # A program may have changed 1 to 1.0.
    if not (numbers := idx.str.fullmatch("[0-9]{1,18}")).all():
        raise UserError(f"{path}: the idx {quoted(rows['idx'][~numbers].iloc[0])} is not a whole number. {remedy}")
    return rows.assign(idx=idx.astype(int), verdict=rows[_VERDICT].str.strip())


def page(group: str, task: Task, suspects: pd.DataFrame, errors: pd.DataFrame, agreement: str) -> str:
    """Render the first 50 suspects as HTML. The page needs no network.

    Args:
        group: The name of the fold group.
        errors, agreement: The results of `estimate_label_errors` and `describe_agreement`.
    """
    rows = [
        {
            **row,
            "texts": pieces([row[column] for column in task.text_columns]),
            "nearest_texts": pieces([row[f"nearest_{column}"] for column in task.text_columns]),
        }
        for row in suspects[:_ROWS_ON_PAGE].to_dict("records")
    ]
    return TEMPLATES.get_template("suspects.html.jinja").render(
        group=group, task=task, suspects=rows, errors=errors.to_dict("records"), agreement=agreement
    )
