"""The charts of the report: Vega-Lite specifications made with Altair, and the JavaScript that draws them.

page.js adds the colours, of the page's light or dark scheme, and the styles `interval` and `reference`. Each series
also has its own dash or shape.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from pipeline.reporting.learning_curves import Epoch
from pipeline.reporting.slices import Slice

Spec = dict[str, Any]

_SPLITS = ("train", "validation", "test")
_MOST_POINTS = 400  # of a line: with every point of a large corpus the page would not open
_DASHES = ([1, 0], [6, 3], [2, 2])
_SHAPES = ("circle", "triangle-up", "diamond")
_SIZES = (90, 90, 260)  # a baseline with the same scores stays visible behind the model's
_LEGEND = alt.Legend(orient="top", title=None, symbolType="stroke", symbolSize=300, symbolStrokeWidth=2)
_SHARES = alt.Axis(format=".0%", tickCount=5)


def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script that needs no network, and page.js, which draws with them."""
    import vl_convert

    return vl_convert.javascript_bundle(Path(__file__).with_name("page.js").read_text(encoding="utf-8"))


def headline(rows: Sequence[Mapping[str, Any]]) -> Spec:
    """Scores with their intervals, and those of other models.

    rows: `score`, `model`, `value`, and for an interval `low` and `high`; at most three models.
    """
    models = list(dict.fromkeys(row["model"] for row in rows))
    legend = alt.Legend(orient="top", title=None, columns=1)  # in a row they are wider than a phone
    on_top_last = rows[::-1]
    base = _chart(on_top_last).encode(y=_names("score", [row["score"] for row in rows]))
    sizes = alt.Scale(type="ordinal", domain=models, range=list(_SIZES))
    points = base.mark_point(filled=True, opacity=1).encode(
        x=alt.X("value:Q", title=None, axis=_SHARES, scale=alt.Scale(zero=False)),
        color=alt.Color("model:N", scale=alt.Scale(domain=models, range="ordinal"), legend=legend),
        shape=alt.Shape("model:N", scale=alt.Scale(domain=models, range=list(_SHAPES)), legend=legend),
        size=alt.Size("model:O", sort=models, scale=sizes, legend=legend),
        tooltip=["score:N", "model:N", _share("value")],
    )
    return _layered(base.mark_rule(style="interval").encode(x="low:Q", x2="high:Q"), points, height=230)


def losses(history: Sequence[Mapping[str, str]], kept_step: int) -> Spec:
    """Train and validation loss over the steps, and the end of the kept epoch. history: rows of history.csv."""
    lines = _lines(history, _SPLITS[:2], "step", "loss").encode(
        x=alt.X("step:Q", title="optimizer step"),
        y=alt.Y("loss:Q", title="cross-entropy (nats)", scale=alt.Scale(zero=False)),
        tooltip=["split:N", "step:Q", alt.Tooltip("loss:Q", format=".4f")],
    )
    points = lines.mark_point(filled=True, size=50, opacity=1).transform_filter("datum.split === 'validation'")
    kept = _chart([{"step": kept_step, "text": "kept"}]).encode(x="step:Q")
    text = kept.mark_text(align="right", baseline="top", dx=-4).encode(y=alt.value(0), text="text:N")
    return _layered(kept.mark_rule(style="reference"), lines, points, text)


def scores(epochs: Sequence[Epoch]) -> Spec:
    """Accuracy and F1 on validation after each epoch."""
    rows = [
        {"epoch": epoch.number, "score": score, "value": value}
        for epoch in epochs
        for score, value in (("accuracy", epoch.accuracy), ("F1", epoch.f1))
    ]
    names = ["accuracy", "F1"]
    chart = _chart(rows).mark_line(point={"filled": True, "size": 50})
    dashes = alt.Scale(domain=names, range=list(_DASHES[:2]))
    chart = chart.encode(
        x=alt.X("epoch:O", title="epoch", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("value:Q", title="validation score", axis=_SHARES, scale=alt.Scale(zero=False)),
        color=alt.Color("score:N", scale=alt.Scale(domain=names, range="ordinal"), legend=_LEGEND),
        strokeDash=alt.StrokeDash("score:N", scale=dashes, legend=_LEGEND),
        tooltip=["score:N", "epoch:O", _share("value")],
    )
    return _layered(chart)


def reliability(bins: Sequence[Mapping[str, str]]) -> Spec:
    """The reliability diagram. bins: rows of reliability.csv."""
    lines = _lines(bins, _SPLITS[1:], "confidence", "accuracy", "n").encode(
        x=alt.X("confidence:Q", title="confidence", axis=_SHARES, scale=alt.Scale(domain=[0.5, 1])),
        y=alt.Y("accuracy:Q", title="share that is right", axis=_SHARES, scale=alt.Scale(domain=[0, 1])),
        tooltip=["split:N", _share("confidence"), _share("accuracy"), alt.Tooltip("n:Q", title="pairs")],
    )
    points = lines.mark_point(filled=True, opacity=0.9).encode(
        size=alt.Size("n:Q", legend=None, scale=alt.Scale(range=[20, 500]))
    )
    return _layered(_diagonal("confidence", "accuracy", start=0.5), lines, points)


def precision_recall(points: Sequence[Mapping[str, str]]) -> Spec:
    """The precision-recall curve. points: rows of precision_recall.csv."""
    lines = _lines(points, _SPLITS[1:], "recall", "precision").encode(
        x=alt.X("recall:Q", title="recall", axis=_SHARES, scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("precision:Q", title="precision", axis=_SHARES, scale=alt.Scale(zero=False)),
    )
    return _layered(lines)


def roc(points: Sequence[Mapping[str, str]]) -> Spec:
    """The ROC curve. points: rows of roc.csv."""
    lines = _lines(points, _SPLITS[1:], "false_positive_rate", "true_positive_rate").encode(
        x=alt.X("false_positive_rate:Q", title="false positive rate", axis=_SHARES, scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("true_positive_rate:Q", title="true positive rate", axis=_SHARES, scale=alt.Scale(domain=[0, 1])),
    )
    return _layered(_diagonal("false_positive_rate", "true_positive_rate"), lines)


def slices(found: Sequence[Slice], accuracy: float) -> Spec:
    """The accuracy of each slice with its interval, and that of all pairs."""
    rows = [
        {"slice": of.name, "accuracy": of.scores["accuracy"], **of.intervals["accuracy"]._asdict(), "pairs": of.n}
        for of in found
    ]
    base = _chart(rows).encode(y=_names("slice", [of.name for of in found]))
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=alt.X("accuracy:Q", title="accuracy", axis=_SHARES, scale=alt.Scale(zero=False)),
        tooltip=["slice:N", "pairs:Q", _share("accuracy"), _share("low"), _share("high")],
    )
    overall = _chart([{"accuracy": accuracy}]).mark_rule(style="reference").encode(x="accuracy:Q")
    intervals = base.mark_rule(style="interval").encode(x="low:Q", x2="high:Q")
    return _layered(overall, intervals, points, height=26 * len(found))


def _chart(rows: Sequence[Mapping[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def _names(field: str, names: Sequence[str]) -> alt.Y:
    axis = alt.Axis(labelLimit=170, ticks=False, domain=False)
    return alt.Y(f"{field}:N", sort=list(dict.fromkeys(names)), title=None, axis=axis)


def _lines(rows: Sequence[Mapping[str, str]], splits: Sequence[str], *columns: str) -> alt.Chart:
    """A line for each split, through its rows in their order. Only `columns` are kept, as numbers."""
    points = [
        {"split": split, "order": order, **{column: float(row[column]) for column in columns}}
        for split in splits
        for order, row in enumerate(_downsampled([row for row in rows if row["split"] == split]))
    ]
    legend = _LEGEND.copy()
    legend.values = list(splits)
    dashes = alt.Scale(domain=list(_SPLITS), range=list(_DASHES))
    chart: alt.Chart = (
        _chart(points)
        .mark_line()
        .encode(
            order="order:Q",
            color=alt.Color("split:N", scale=alt.Scale(domain=list(_SPLITS)), legend=legend),
            strokeDash=alt.StrokeDash("split:N", scale=dashes, legend=legend),
        )
    )
    return chart


def _downsampled(points: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
    return [*points[: -1 : len(points) // _MOST_POINTS + 1], *points[-1:]]


def _diagonal(x: str, y: str, start: float = 0) -> alt.Chart:
    ends = _chart([{x: start, y: start}, {x: 1, y: 1}])
    line: alt.Chart = ends.mark_line(style="reference").encode(x=f"{x}:Q", y=f"{y}:Q")
    return line


def _share(field: str) -> alt.Tooltip:
    return alt.Tooltip(f"{field}:Q", format=".1%")


def _layered(*layers: alt.Chart, height: int = 260) -> Spec:
    """The layers drawn over each other, as wide as their container."""
    chart = alt.layer(*layers).properties(width="container", height=height)
    drawn: Spec = chart.properties(autosize={"type": "fit-x", "contains": "padding"}).to_dict()
    del drawn["config"]  # Altair's own theme
    return drawn
