"""A page with the rows of a fold group whose labels are probably wrong."""

import pandas as pd

from pipeline.core.task import Task
from pipeline.reporting.mistakes import pieces
from pipeline.reporting.page import TEMPLATES


def render_page(group: str, task: Task, suspects: pd.DataFrame) -> str:
    """Render the first 50 suspects of a fold group as HTML. The page needs no network."""
    rows = suspects[:50].to_dict("records")
    for row in rows:
        texts, nearest = ([row[prefix + name] for name in task.text_columns] for prefix in ("", "nearest_"))
        row |= {"texts": pieces(texts), "nearest_texts": pieces(nearest), "is_contradiction": texts == nearest}
    return TEMPLATES.get_template("suspects.html.jinja").render(group=group, task=task, suspects=rows)
