"""The charts of the report: Vega-Lite specifications made with Altair, and the JavaScript that draws them.

page.js adds the colors of the page's light or dark scheme, and the styles `interval` and `reference`. Series differ not
only in color, but also in their dashes or shapes.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from pipeline.evaluation.metrics import METRICS
from pipeline.reporting.slices import MIN_ROWS, Slice

Spec = dict[str, Any]

_MAX_POINTS = 400  # of a line. With every point of a large corpus, the page would not open.
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
_SHAPES = ("circle", "square", "triangle-up")
_COLOR_ORDER = ("train", "validation", "test", "validation_mismatched")
_PERCENT = alt.Axis(format=".0%", tickCount=5)
alt.data_transformers.disable_max_rows()  # The limit of 5,000 rows would stop the report of a very long training.


@cache
def javascript() -> str:
    """Bundle page.js with Vega, Vega-Lite and Vega-Embed into a script that needs no network."""
    return vl_convert.javascript_bundle(Path(__file__).with_name("page.js").read_text(encoding="utf-8"))


def headline(rows: Sequence[Mapping[str, Any]]) -> Spec:
    """Draw the scores of a model with their intervals, and the scores of other models.

    Args:
        rows: Each has the keys `score`, `model` and `value`, and `low` and `high` if there is an interval. There are at
            most three models.
    """
    models = list(dict.fromkeys(row["model"] for row in rows))
    legend = alt.Legend(orient="top", title=None, columns=1)  # A row would be wider than a phone.
    reversed_rows = pd.DataFrame(rows[::-1])  # Vega draws later rows on top, so this model comes last.
    base = alt.Chart(reversed_rows).encode(y=_names("score", [row["score"] for row in rows]))
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=alt.X("value:Q", title=None, axis=_PERCENT, scale=alt.Scale(zero=False)),
        color=alt.Color("model:N", scale=alt.Scale(domain=models, range="ordinal"), legend=legend),
        shape=alt.Shape("model:N", scale=alt.Scale(domain=models, range=list(_SHAPES)), legend=legend),
        tooltip=["score:N", "model:N", _percent("value")],
    )
    height = 38 * len({row["score"] for row in rows}) + 78
    return _layered(base.mark_rule(style="interval").encode(x="low:Q", x2="high:Q"), points, height=height)


def losses(history: pd.DataFrame, kept_step: int, title: str) -> Spec:
    """Draw the train and validation loss at each step, and a line at the end of the kept epoch.

    Args:
        history: The rows of history.csv.
        title: The name of the loss.
    """
    lines = _lines(history, ["train", "validation"], "step", "loss").encode(
        x=alt.X("step:Q", title="optimizer step"),
        y=alt.Y("loss:Q", title=title, scale=alt.Scale(zero=False)),
        tooltip=["split:N", "step:Q", alt.Tooltip("loss:Q", format=".4f")],
    )
    points = lines.mark_point(filled=True, size=50, opacity=1).transform_filter("datum.split === 'validation'")
    kept = alt.Chart(pd.DataFrame([{"step": kept_step, "text": "kept"}])).encode(x="step:Q")
    text = kept.mark_text(align="right", baseline="top", dx=-4).encode(y=alt.value(0), text="text:N")
    return _layered(kept.mark_rule(style="reference"), lines, points, text)


def scores(epochs: pd.DataFrame, names: Sequence[str]) -> Spec:
    """Draw the metrics `names`, which are proportions or correlations, on validation after each epoch."""
    titles = {name: METRICS[name].title for name in names}
    rows = epochs[list(titles)].rename(columns=titles).reset_index().melt("epoch", var_name="score")
    chart = alt.Chart(rows).mark_line(point={"filled": True, "size": 50})
    domain = list(titles.values())
    dashes = alt.Scale(domain=domain, range=list(_DASHES[: len(domain)]))
    chart = chart.encode(
        x=alt.X("epoch:O", title="epoch", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("value:Q", title="validation score", axis=_PERCENT, scale=alt.Scale(zero=False)),
        color=alt.Color("score:N", scale=alt.Scale(domain=domain, range="ordinal"), legend=_legend(domain)),
        strokeDash=alt.StrokeDash("score:N", scale=dashes, legend=_legend(domain)),
        tooltip=["score:N", "epoch:O", _percent("value")],
    )
    return _layered(chart)


def reliability(bins: pd.DataFrame, splits: Sequence[str], lowest: float) -> Spec:
    """Draw the reliability diagram.

    Args:
        bins: The rows of reliability.csv.
        lowest: The lowest possible confidence.
    """
    points = _lines(bins, splits, "confidence", "accuracy", "n", symbol="circle").encode(
        x=alt.X("confidence:Q", title="confidence", axis=_PERCENT, scale=alt.Scale(domain=[lowest, 1])),
        y=alt.Y("accuracy:Q", title="accuracy", axis=_PERCENT, scale=alt.Scale(domain=[0, 1])),
        size=alt.Size("n:Q", legend=None, scale=alt.Scale(range=[20, 500])),
        tooltip=["split:N", _percent("confidence"), _percent("accuracy"), alt.Tooltip("n:Q", title="predictions")],
    )
    # A line would connect groups of a single prediction, which are right on 0% or 100%.
    return _layered(_diagonal("confidence", "accuracy", lowest, 1), points.mark_point(filled=True, opacity=0.9))


def precision_recall(points: pd.DataFrame, splits: Sequence[str]) -> Spec:
    """Draw the precision-recall curve. `points` are the rows of precision_recall.csv."""
    lines = _lines(points, splits, "recall", "precision").encode(
        x=alt.X("recall:Q", title="recall", axis=_PERCENT, scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("precision:Q", title="precision", axis=_PERCENT, scale=alt.Scale(zero=False)),
    )
    return _layered(lines)


def roc(points: pd.DataFrame, splits: Sequence[str]) -> Spec:
    """Draw the ROC curve. `points` are the rows of roc.csv."""
    lines = _lines(points, splits, "false_positive_rate", "true_positive_rate").encode(
        x=alt.X("false_positive_rate:Q", title="false positive rate", axis=_PERCENT, scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("true_positive_rate:Q", title="true positive rate", axis=_PERCENT, scale=alt.Scale(domain=[0, 1])),
    )
    return _layered(_diagonal("false_positive_rate", "true_positive_rate", 0, 1), lines)


def predictions(points: pd.DataFrame, split: str) -> Spec:
    """Draw the predictions of a regression against the labels. `points` are the rows of residuals.csv."""
    rows = points.loc[points["split"] == split, ["label", "prediction"]]
    marks = (
        alt.Chart(rows)
        .mark_point(filled=True, size=18, opacity=0.5)
        .encode(
            x=alt.X("label:Q", title="label", scale=alt.Scale(zero=False)),
            y=alt.Y("prediction:Q", title="prediction", scale=alt.Scale(zero=False)),
        )
    )
    return _layered(_diagonal("label", "prediction", rows.min(axis=None), rows.max(axis=None)), marks)


def slice_chart(slices: Sequence[Slice], name: str, overall: float) -> Spec:
    """Draw a metric and its interval in each slice for which it is defined, and a line at the metric of all rows."""
    rows = pd.DataFrame(
        {"slice": part.name, "score": part.scores[name], **part.intervals[name], "rows": part.n}
        for part in slices
        if name in part.scores
    )
    is_error = METRICS[name].is_error
    titles = {"score": METRICS[name].title, "low": "95% interval from", "high": "95% interval to"}
    numbers = [
        alt.Tooltip(f"{field}:Q", title=title, format=".3f" if is_error else ".1%") for field, title in titles.items()
    ]
    axis = alt.Axis(tickCount=5) if is_error else _PERCENT
    base = alt.Chart(rows).encode(y=_names("slice", [part.name for part in slices]))
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=alt.X("score:Q", title=METRICS[name].title, axis=axis, scale=alt.Scale(zero=False)),
        tooltip=["slice:N", alt.Tooltip("rows:Q", title="examples"), *numbers],
    )
    reference = alt.Chart(pd.DataFrame([{"score": overall}])).mark_rule(style="reference").encode(x="score:Q")
    # The error of a few rows may have an interval so wide that all points would be drawn at the same place.
    rows_with_intervals = base.transform_filter(f"datum.rows >= {MIN_ROWS}") if is_error else base
    intervals = rows_with_intervals.mark_rule(style="interval").encode(x="low:Q", x2="high:Q")
    return _layered(reference, intervals, points, height=26 * len(rows))


def training_sizes(points: Sequence[Mapping[str, Any]], curve: Sequence[Mapping[str, Any]], name: str) -> Spec:
    """Draw a metric against the number of training rows: the points with intervals, and the curve through them.

    The points and the curve are those of curve.json. The band of the curve is drawn after the last point.
    """
    largest, end = points[-1]["rows"], (curve or points)[-1]["rows"]
    is_error = METRICS[name].is_error
    scale = alt.Scale(type="log", domain=[points[0]["rows"], end], nice=False, padding=12)
    ticks = alt.Axis(values=[*(point["rows"] for point in points), end], format=",", grid=False)
    x = alt.X("rows:Q", title="training rows", scale=scale, axis=ticks)
    axis = alt.Axis(tickCount=5) if is_error else _PERCENT
    y = alt.Y("value:Q", title=f"validation {METRICS[name].title}", axis=axis, scale=alt.Scale(zero=False))
    line = alt.Chart(pd.DataFrame([row for row in curve if row["rows"] <= largest])).mark_line().encode(x=x, y=y)
    extrapolation = alt.Chart(pd.DataFrame([row for row in curve if row["rows"] >= largest])).encode(x=x)
    scores = alt.Chart(pd.DataFrame(points)).encode(x=x)
    tooltip = [alt.Tooltip("rows:Q", format=","), alt.Tooltip("value:Q", format=".3f" if is_error else ".1%")]
    band = extrapolation.mark_area(opacity=0.2).encode(y="low:Q", y2="high:Q")
    return _layered(
        *([band, line, extrapolation.mark_line(strokeDash=_DASHES[1]).encode(y=y)] if curve else []),
        scores.mark_rule(style="interval").encode(y="low:Q", y2="high:Q"),
        scores.mark_point(filled=True, size=70, opacity=1).encode(y=y, tooltip=tooltip),
        height=320,
    )


def _names(field: str, names: Sequence[str]) -> alt.Y:
    axis = alt.Axis(labelLimit=170, ticks=False, domain=False)
    return alt.Y(f"{field}:N", sort=list(dict.fromkeys(names)), title=None, axis=axis)


def _lines(rows: pd.DataFrame, splits: Sequence[str], *columns: str, symbol: str = "stroke") -> alt.Chart:
    """Draw a line for each of the splits through its rows, in their order.

    Args:
        columns: The columns to keep.
        symbol: The symbols in the legend. Vega does not draw a "stroke" for points.
    """
    # The first color is for train, even if train is not drawn.
    ordered_splits = sorted({"train", *splits}, key=_COLOR_ORDER.index)
    drawn = [split for split in ordered_splits if split in splits]
    lines = [_downsample(rows.loc[rows["split"] == split, ["split", *columns]]) for split in drawn]
    points = pd.concat(lines).rename_axis("order").reset_index()
    legend = _legend(drawn, symbol)
    dashes = alt.Scale(domain=ordered_splits, range=list(_DASHES[: len(ordered_splits)]))
    chart: alt.Chart = (
        alt.Chart(points)
        .mark_line()
        .encode(
            order="order:Q",
            color=alt.Color("split:N", scale=alt.Scale(domain=ordered_splits), legend=legend),
            strokeDash=alt.StrokeDash("split:N", scale=dashes, legend=legend),
        )
    )
    return chart


def _downsample(points: pd.DataFrame) -> pd.DataFrame:
    """Return every k-th point and the last one, so that at most about _MAX_POINTS remain."""
    return pd.concat([points.iloc[: -1 : len(points) // _MAX_POINTS + 1], points.iloc[-1:]])


def _legend(names: Sequence[str], symbol: str = "stroke") -> alt.Legend:
    """Return a legend. If a row of the names would be wider than a phone, the names form a column."""
    legend = alt.Legend(orient="top", title=None, symbolType=symbol, symbolSize=300, symbolStrokeWidth=2)
    legend.values = list(names)
    if sum(map(len, names)) > 20:
        legend.columns = 1
    return legend


def _diagonal(x: str, y: str, start: float, end: float) -> alt.Chart:
    ends = pd.DataFrame([{x: start, y: start}, {x: end, y: end}])
    line: alt.Chart = alt.Chart(ends).mark_line(style="reference").encode(x=f"{x}:Q", y=f"{y}:Q")
    return line


def _percent(field: str) -> alt.Tooltip:
    return alt.Tooltip(f"{field}:Q", format=".1%")


def _layered(*layers: alt.Chart, height: int = 260) -> Spec:
    """Draw the layers on top of each other, in the full width of their container."""
    chart = alt.layer(*layers).properties(width="container", height=height)
    specification: Spec = chart.properties(autosize={"type": "fit-x", "contains": "padding"}).to_dict()
    del specification["config"]  # It holds Altair's theme, and page.js sets its own.
    return specification
