"""The charts of the report: Altair, drawn as SVG without scripts. The colors are variables of colors.css."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import vl_convert
from markupsafe import Markup, escape

from pipeline.evaluation.diagnostics import PLOTS
from pipeline.evaluation.metrics import METRICS, Floats
from pipeline.reporting.findings import with_unit

SMALL, LARGE = (300, 190), (440, 260)  # width and height

_MODEL, _OTHER, _INK, _MUTED, _LINE = (f"var(--{color})" for color in ("model", "other", "ink", "muted", "line"))
_FONT = "Liberation Sans"  # vl-convert contains this font, so the layout is the same on every machine.
_TEXT = {"labelColor": _MUTED, "titleColor": _MUTED, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 400}
_CONFIG = {
    "aria": False,  # A name for each point would triple the size. The whole chart has a name.
    "axis": {**_TEXT, "gridColor": _LINE, "domainColor": _LINE, "tickColor": _LINE, "tickCount": 4},
    "axisX": {"labelFlush": False}, "background": None, "font": _FONT, "view": {"stroke": None},
    "legend": {**_TEXT, "orient": "top", "title": None, "symbolType": "stroke"},
    "mark": {"color": _MODEL}, "point": {"filled": True}, "rule": {"color": _MUTED}, "text": {"color": _MUTED},
}  # fmt: skip
_MAX_POINTS = 300  # of a line or a scatter plot. With every point of a large corpus, the page would be slow.
_DASHED = [4, 3]
_ANY = alt.Scale(zero=False)


def svg(label: str, *layers: alt.Chart, size: tuple[int, int] = SMALL) -> Markup:
    """Draw layers on top of each other, with a name for screen readers."""
    fit, chart = alt.AutoSizeParams(type="fit", contains="padding"), alt.layer(*layers)
    specification = chart.properties(width=size[0], height=size[1], autosize=fit).to_dict(validate=False)
    drawing = vl_convert.vegalite_to_svg(specification | {"config": _CONFIG}).replace(f' font-family="{_FONT}"', "")
    return Markup(drawing.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1))


def scores(rows: pd.DataFrame, metric: str, overall: float | None = None) -> Markup:
    """Draw scores, with their intervals as soft bars, if they have any.

    Args:
        rows: The columns `value`, `low` and `high`, indexed by name.
        overall: The score of all slices together. If it is given, the chart is small and has a line there.
    """
    size, font, padding = (LARGE, 14, 24) if overall is None else (SMALL, 12, 8)
    rows = rows.rename_axis("name").reset_index()
    rows["text"] = [with_unit(value, metric) for value in rows["value"]]
    labels = alt.Axis(domain=False, ticks=False, labelColor=_INK, labelFontSize=font, labelLimit=120)
    base = alt.Chart(rows).encode(y=alt.Y("name:N", sort=rows["name"].tolist(), title=None, axis=labels))
    scale = alt.Scale(zero=False, padding=padding)
    x = alt.X("value:Q", title=METRICS[metric].title, axis=_axis(metric), scale=scale)
    color = alt.condition("isValid(datum.low)", alt.value(_MODEL), alt.value(_OTHER))
    points = base.mark_point(opacity=1, size=60).encode(x=x, color=color)
    intervals = _intervals(base, x=alt.X("low:Q", scale=scale), x2="high:Q")
    if overall is None:
        detail = base.mark_text(dy=-20, fontSize=font, fontWeight=600, color=_INK).encode(x=x, text="text:N")
    else:
        detail = alt.Chart(pd.DataFrame([{"value": overall}])).mark_rule(strokeDash=_DASHED).encode(x=x)
    label = ", ".join(rows["name"] + " " + rows["text"])
    return svg(f"{METRICS[metric].title}: {label}", intervals, points, detail, size=size)


def losses(history: pd.DataFrame, kept_epoch: int) -> Markup:
    """Draw the losses on train and on validation, and a line at the epoch that was kept."""
    splits = ["train", "validation"]
    rows = pd.concat([_thinned(history.loc[history["split"] == split, ["split", "epoch", "loss"]]) for split in splits])
    x = alt.X("epoch:Q", axis=alt.Axis(format="d", tickMinStep=1, grid=False))
    color = alt.Color("split:N", scale=alt.Scale(domain=splits, range=[_OTHER, _MODEL]))
    dash = alt.StrokeDash("split:N", scale=alt.Scale(domain=splits, range=[_DASHED, [1, 0]]))
    lines = alt.Chart(rows).encode(x=x, y=alt.Y("loss:Q", scale=_ANY), color=color)
    points = lines.mark_point(size=40, opacity=1).transform_filter("datum.split === 'validation'")
    kept = alt.Chart(pd.DataFrame([{"epoch": kept_epoch, "text": "kept"}])).encode(x=x)
    text = kept.mark_text(align="right", dx=-4, baseline="top").encode(y=alt.value(0), text="text:N")
    layers = [kept.mark_rule(strokeDash=_DASHED), lines.mark_line().encode(strokeDash=dash), points, text]
    return svg(f"Losses on train and validation. The model after epoch {kept_epoch} was kept.", *layers)


def plot(name: str, points: pd.DataFrame, lowest: float = 0.0) -> Markup:
    """Draw a plot of `diagnostics.plots`. `lowest` is the lowest possible confidence in a reliability diagram."""
    x, y = PLOTS[name][:2]
    is_regression = name == "residuals"
    low, high = (points.min(axis=None), points.max(axis=None)) if is_regression else (lowest, 1)
    axis = alt.Axis(format="~g" if is_regression else ".0%")
    x_channel = alt.X(f"{x}:Q", axis=axis, scale=alt.Scale(domain=[low, high]))
    y_channel = alt.Y(f"{y}:Q", axis=axis, scale=alt.Scale(domain=[low if is_regression else 0, high]))
    chart = alt.Chart(_thinned(points)).encode(x=x_channel, y=y_channel)
    marks = chart.mark_point(size=24, opacity=0.5)
    if name == "reliability":
        marks = marks.encode(size=alt.Size("n:Q", legend=None, scale=alt.Scale(range=[20, 300])))
    ends = alt.Chart(pd.DataFrame([{x: low, y: low}, {x: high, y: high}])).encode(x=x_channel, y=y_channel)
    diagonal = ends.mark_line(strokeDash=_DASHED, color=_MUTED)
    return svg(f"{y} against {x}", diagonal, marks, size=LARGE if is_regression else SMALL)


def errors(differences: Floats) -> Markup:
    """Draw the distribution of the errors of a regression."""
    counts, edges = np.histogram(differences, bins=21)
    rows = alt.Chart(pd.DataFrame({"start": edges[:-1], "end": edges[1:], "n": counts}))
    x, y = alt.X("start:Q", title="prediction minus label", scale=_ANY), alt.Y("n:Q", title=None)
    bars = rows.mark_bar(opacity=0.75, orient="vertical", binSpacing=1).encode(x=x, x2="end:Q", y=y)
    zero = alt.Chart(pd.DataFrame([{"start": 0}])).mark_rule(strokeDash=_DASHED).encode(x=x)
    return svg("Histogram of prediction minus label", bars, zero)


def training_sizes(content: Mapping[str, Any]) -> str:
    """Return curve.svg from the content of curve.json: the points, the curve through them, and the predicted band."""
    metric, points, fitted = content["metric"], pd.DataFrame(content["points"]), pd.DataFrame(content["curve"])
    ticks = sorted({*points["rows"], *(row["rows"] for row in content["curve"][-1:])})
    axis = alt.Axis(values=ticks, tickCount=len(ticks), format=",", grid=False)
    scale = alt.Scale(type="log", domain=[ticks[0], ticks[-1]], nice=False, padding=14)
    x = alt.X("rows:Q", title="training rows", scale=scale, axis=axis)
    title = f"validation {METRICS[metric].title}"
    y, low = alt.Y("value:Q", title=title, axis=_axis(metric), scale=_ANY), alt.Y("low:Q", scale=_ANY)
    layers = []
    if content["curve"]:
        is_predicted, is_measured = fitted["rows"] >= points["rows"].max(), fitted["rows"] <= points["rows"].max()
        measured, predicted = (alt.Chart(fitted[part]).encode(x=x) for part in (is_measured, is_predicted))
        band = predicted.mark_area(opacity=0.18).encode(y=low, y2="high:Q")
        layers = [band, measured.mark_line().encode(y=y), predicted.mark_line(strokeDash=_DASHED).encode(y=y)]
    base = alt.Chart(points[["rows", "value", "low", "high"]]).encode(x=x)
    layers += [_intervals(base, y=low, y2="high:Q"), base.mark_point(size=60, opacity=1).encode(y=y)]
    drawing = svg(f"{title} against the number of training rows", *layers, size=(640, 360))
    colors = Path(__file__).with_name("colors.css").read_text(encoding="utf-8")
    style = f"<style>{colors}svg {{ background: var(--page); font-family: Arial, sans-serif; }}</style>"
    return str(drawing).replace(">", f">{style}", 1)


def _intervals(base: alt.Chart, **bounds: Any) -> alt.Chart:
    bars = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
    soft: alt.Chart = bars.mark_bar(size=12, cornerRadius=4, opacity=0.25)
    return soft.encode(**bounds)


def _axis(metric: str) -> alt.Axis:
    return alt.Axis(format=".3~g" if METRICS[metric].is_error else ".0%")


def _thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """Return every k-th row and the last one, so that at most about _MAX_POINTS remain."""
    return pd.concat([rows[: -1 : len(rows) // _MAX_POINTS + 1], rows[-1:]])
