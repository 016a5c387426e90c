"""The rows of a fold group whose labels are probably wrong, as a CSV file and as a page."""

import csv
from pathlib import Path

import pandas as pd

from pipeline.core.output import write_text
from pipeline.core.task import Task
from pipeline.reporting.mistakes import pieces
from pipeline.reporting.page import TEMPLATES


def write_suspects(path: Path, suspects: pd.DataFrame) -> None:
    """Write suspects.csv, which a person edits in a spreadsheet."""
    # Without the byte order mark, Excel reads UTF-8 as another encoding.
    write_text(path, "\ufeff" + suspects.to_csv(index=False, quoting=csv.QUOTE_ALL, lineterminator="\n"))


def render_page(group: str, task: Task, suspects: pd.DataFrame) -> str:
    """Render the first 50 suspects of a fold group as HTML. The page needs no network."""
    rows = suspects[:50].to_dict("records")
    for row in rows:
        texts, nearest = ([row[prefix + name] for name in task.text_columns] for prefix in ("", "nearest_"))
        row |= {"texts": pieces(texts), "nearest_texts": pieces(nearest), "is_contradiction": texts == nearest}
    return TEMPLATES.get_template("suspects.html.jinja").render(group=group, task=task, suspects=rows)
