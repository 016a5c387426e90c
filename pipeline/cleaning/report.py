"""Write what `python -m pipeline.suspects` finds: suspects.csv, to be edited, and suspects.html, to be read."""

from pathlib import Path

import pandas as pd

from pipeline.cleaning.error_count import ErrorCount
from pipeline.core.messages import UserError
from pipeline.core.task import Task
from pipeline.core.text import quoted
from pipeline.reporting.mistakes import pieces
from pipeline.reporting.templates import SINGULAR, TEMPLATES
from pipeline.tabular.reading import ColumnSelection, read_file
from pipeline.tabular.writing import writing_rows

_ON_PAGE = 50
_VERDICT = "verdict"


def write_suspects(path: Path, suspects: pd.DataFrame) -> None:
    """Write the suspects with an empty column for the user's verdicts.

    Raises:
        UserError: The file exists and has verdicts.
    """
    if path.exists() and len(read_verdicts(path)):
        raise UserError(f"{path} has verdicts, which would be lost. Apply them with --apply, or move the file.")
    columns = {name: suspects[name].tolist() for name in suspects}
    with writing_rows(path) as write:
        write({_VERDICT: [""] * len(suspects), **columns}, {})


def read_verdicts(path: Path) -> pd.DataFrame:
    """Return the rows with a verdict from a file that `write_suspects` has written and a person has edited.

    The columns are "verdict", "idx" (a number), and the other columns as texts.

    Raises:
        UserError: The file cannot be read.
    """
    remedy = "Use a suspects.csv that python -m pipeline.suspects has written."
    selection = ColumnSelection([_VERDICT, "idx"], keep_rest=True, remedy=remedy)
    batches = [pd.DataFrame(batch.columns) for batch in read_file(path, selection)]
    rows = pd.concat(batches)
    rows = rows[rows[_VERDICT].str.strip() != ""]
    if not (numbers := rows["idx"].str.fullmatch(r"\d+")).all():
        raise UserError(f"{path}: the idx {quoted(rows['idx'][~numbers].iloc[0])} is not a number. {remedy}")
    return rows.assign(idx=rows["idx"].astype(int), verdict=rows[_VERDICT].str.strip())


def page(group: str, task: Task, suspects: pd.DataFrame, errors: list[ErrorCount]) -> str:
    """Render the first 50 suspects as HTML. The page needs no network.

    Args:
        group: The name of the fold group.
    """
    rows = [
        {**row, "texts": pieces([row[column] for column in task.text_columns])}
        for row in suspects[:_ON_PAGE].to_dict("records")
    ]
    return TEMPLATES.get_template("suspects.html.jinja").render(
        group=group, task=task, singular=SINGULAR[task.noun], suspects=rows, errors=errors
    )
