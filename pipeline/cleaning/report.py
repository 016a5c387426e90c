"""Write what `python -m pipeline.suspects` finds: suspects.csv, to be edited, and suspects.html, to be read."""

import csv
from pathlib import Path

import pandas as pd

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output
from pipeline.core.task import Task
from pipeline.reporting.mistakes import pieces
from pipeline.reporting.templates import TEMPLATES
from pipeline.sources.corrections import read_verdicts

_ROWS_ON_PAGE = 50
_COLUMNS = ("verdict", "label", "prediction", "probability", "loss", "place", "idx", "contradicts")


def require_writable(path: Path, task: Task) -> None:
    """Raise UserError if suspects.csv cannot hold the texts of a task, or already has verdicts."""
    for name in task.text_columns:
        if name in _COLUMNS or name.startswith("nearest_"):
            raise UserError(f'suspects.csv has a column "{name}" of its own. Rename the text column in your data.')
    if path.exists() and len(read_verdicts(path, [])):
        raise UserError(f"{path} has verdicts, which would be lost. Move the file.")


def write_suspects(path: Path, suspects: pd.DataFrame) -> None:
    """Write the suspects with an empty column for the user's verdicts."""
    with atomic_output(path) as draft:
        # Without the byte order mark, Excel reads UTF-8 as another encoding.
        suspects.assign(verdict="")[["verdict", *suspects]].to_csv(
            draft, index=False, encoding="utf-8-sig", quoting=csv.QUOTE_ALL, lineterminator="\n"
        )


def page(group: str, task: Task, suspects: pd.DataFrame) -> str:
    """Render the first 50 suspects as HTML. The page needs no network.

    Args:
        group: The name of the fold group.
    """
    rows = [
        {
            **row,
            "texts": pieces([row[column] for column in task.text_columns]),
            "nearest_texts": pieces([row[f"nearest_{column}"] for column in task.text_columns]),
        }
        for row in suspects[:_ROWS_ON_PAGE].to_dict("records")
    ]
    return TEMPLATES.get_template("suspects.html.jinja").render(group=group, task=task, suspects=rows)
