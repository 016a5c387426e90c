"""The page of a learning curve: how the score grows with the number of training rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.evaluation.metrics import METRICS
from pipeline.reporting import charts
from pipeline.reporting.templates import TEMPLATES


def training_sizes_page(content: Mapping[str, Any], sentences: Sequence[str]) -> str:
    """Render the page as HTML. It contains no date and no path, so the same content gives the same text.

    Args:
        content: The content of curve.json.
        sentences: The predictions in words.
    """
    return TEMPLATES.get_template("training_sizes.html.jinja").render(
        content,
        chart=charts.training_sizes(content["points"], content["curve"], content["metric"]),
        meaning=METRICS[content["metric"]].meaning,
        script=charts.javascript(),
        sentences=sentences,
    )
