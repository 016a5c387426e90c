"""The Jinja templates of the page and of the model card, and the filters that format numbers in them."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any

import jinja2

from pipeline.core.output import rounded
from pipeline.core.text import code, format_number, percent
from pipeline.evaluation.metrics import METRICS, SCORES
from pipeline.evaluation.signature import as_line

_UNDEFINED = "\N{EN DASH}"


def better_or_worse(interval: Mapping[str, Any], value: float, name: str) -> str:
    """Return "better" or "worse" if an interval of a metric excludes a value, and an empty text if it includes it."""
    # The value was rounded when it was written to a file, so the interval is rounded in the same way. JSON has no
    # infinity, so a bound at infinity is None.
    low = rounded(interval["low"])
    high = inf if interval["high"] is None else rounded(interval["high"])
    if low <= value <= high:
        return ""
    return "better" if METRICS[name].sign * (low - value) > 0 else "worse"


def _difference(difference: float, name: str) -> str:
    """Format a difference in a metric with its sign."""
    return METRICS[name].format_difference(difference).replace("-", "\N{MINUS SIGN}")


def _gap(difference: float, name: str) -> str:
    """Say how much higher or lower a metric of the model is than the score that it is compared with."""
    metric = METRICS[name]
    if float(metric.format_difference(difference)) == 0:
        return f"{metric.title} is the same"
    unit = "" if metric.is_error else " percentage points"
    return f"{metric.title} is {metric.format(abs(difference))}{unit} {'higher' if difference > 0 else 'lower'}"


def _in_percent(names: Iterable[str], unit: str = "percent") -> str:
    """Return a note that says which of these scores are in `unit`: all, only the correlations, or none."""
    scales = {METRICS[name].scale for name in names}
    if "error" not in scales:
        return f" (in {unit})"
    return f" (correlations in {unit})" if "correlation" in scales else ""


def format_score(value: float | None, name: str, unit: bool = False) -> str:
    """Format a score, or return a dash if it is undefined or a bound at infinity."""
    if value is None or not isfinite(value):
        return _UNDEFINED
    score = SCORES[name]
    return f"{score.format(value)}%" if unit and not score.is_error else score.format(value)


def _sha256(text: str) -> str:
    """Return the hash of a script in the form that a Content-Security-Policy needs."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    # Text from the data cannot become markup of the page. The card is Markdown, where the filter `code` escapes it.
    autoescape=jinja2.select_autoescape(["html.jinja"]),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.filters |= {
    "better_or_worse": better_or_worse,
    "code": code,
    "difference": _difference,
    "format_score": format_score,
    "gap": _gap,
    "in_percent": _in_percent,
    "metric_title": lambda name: SCORES[name].title,
    "is_error": lambda name: METRICS[name].is_error,
    "number": format_number,
    "percent": lambda proportion: _UNDEFINED if proportion is None else percent(proportion),
    "sha256": _sha256,
    "signature_line": as_line,
    "thousands": "{:,}".format,
    "upper_first": lambda text: text[0].upper() + text[1:],
}
