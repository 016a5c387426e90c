"""The report: pictures first, then a section for each question."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup

from pipeline.core.task import MAX_TRUNCATED
from pipeline.core.text import code
from pipeline.evaluation.diagnostics import plots, reliability
from pipeline.evaluation.intervals import MIN_EXAMPLES, caveats
from pipeline.evaluation.metrics import METRICS
from pipeline.reporting import charts, findings
from pipeline.reporting.mistakes import describe_mistake, pieces, worst_mistakes
from pipeline.reporting.results import Results
from pipeline.reporting.slices import TOO_FEW, score_slices, slice_metric
from pipeline.sources.data_card import label_table

_MAX_TILES, _MAX_BARS, _MAX_LABELS, _MAX_SLICES = 6, 5, 10, 6  # in a picture on the first screen

TEMPLATES = jinja2.Environment(
    # Text from the data cannot become markup of the page. The card is Markdown, where the filter `code` escapes it.
    loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=jinja2.select_autoescape(["html.jinja"]),
    undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
)  # fmt: skip
TEMPLATES.filters["code"] = code
_MACROS: Any = TEMPLATES.get_template("macros.html.jinja").module


class Section(NamedTuple):
    """A section of the report.

    Attributes:
        intro: The first sentences.
        body: Charts and tables.
        picture: What the first screen shows. None if the section is not there.
        finding: The sentence below it. By default, it is `intro`.
        note: How to read the charts and tables.
    """

    title: str
    intro: str
    body: Sequence[Markup]
    picture: Markup | None = None
    finding: str = ""
    note: str = ""


def page(results: Results) -> str:
    """Render the report as HTML. It contains no date and no path, so the same results give the same text."""
    comparison, is_better = findings.comparison(results)
    return TEMPLATES.get_template("report.html.jinja").render(
        results=results, task=results.task, headline=findings.headline(results), comparison=comparison,
        is_better=is_better, pictures=_pictures(results), sections=[*_sections(results)], warnings=_warnings(results),
    )  # fmt: skip


def _pictures(results: Results) -> Iterator[tuple[str, Markup, str]]:
    """Yield the two large pictures, the score and what goes wrong, each with a title and a sentence."""
    task, name = results.task, results.task.metrics[0]
    models = {"this model": results.details["intervals"][name]}
    models |= {model: {"value": value} for model, value in results.simpler_scores(results.split, name).items()}
    direction = " (lower is better)" if METRICS[name].is_error else ""
    yield f"{METRICS[name].title} with its 95% interval{direction}", charts.scores(pd.DataFrame(models).T, name), ""
    drawn = plots(task, results.scored)
    if task.is_regression:
        yield "Predictions against labels", charts.plot("residuals", drawn["residuals"]), ""
    elif task.is_multi_label:
        f1 = results.classes["f1"].dropna().sort_values(kind="stable")[:_MAX_LABELS]
        labels = [(*bar, f"{bar[1]:.1%}") for bar in f1.items()]
        yield "F1 of each label, worst first", _MACROS.bars(labels, "model"), findings.classes(results)
    elif len(task.labels) <= _MAX_TILES:
        matrix = drawn["confusion"].pivot(index="actual", columns="predicted", values="n")
        counts = matrix.reindex(task.labels, columns=task.labels).fillna(0).astype(int).to_numpy().tolist()
        yield "Labels (rows) and predictions (columns)", _MACROS.tiles(task.labels, counts), findings.classes(results)
    else:
        wrong = drawn["confusion"].query("actual != predicted").nlargest(_MAX_BARS, "n")
        names = "“" + wrong["actual"] + "” predicted as “" + wrong["predicted"] + "”"
        bars = zip(names, wrong["n"] / wrong["n"].max(), wrong["n"].map("{:,}".format), strict=True)
        yield "The most frequent confusions", _MACROS.bars(list(bars), "wrong"), findings.classes(results)


def _sections(results: Results) -> Iterator[Section]:
    task = results.task
    meanings = f"A 95% interval is a plausible range for the score on many more {task.noun}, but not with other seeds."
    for metric in [METRICS[name] for name in results.details["scores"]]:
        meanings += f" {metric.title[0].upper()}{metric.title[1:]} is {metric.meaning}."
    yield Section("Scores", "", [table(score_table(results), "In percent, except for errors")], note=meanings)
    epochs = table(_epochs(results), "The scores are those on validation", "{:.4f}".format)
    losses = charts.losses(results.history, results.training["kept_epoch"])
    yield Section("Learning", findings.learning(results), [losses, epochs], losses)
    if task.is_regression:
        errors = results.scored.predicted - results.scored.labels
        picture = charts.errors(errors)
        yield Section("Errors", findings.errors(results), [picture], picture)
    else:
        class_scores = results.classes.rename(columns={"n": task.noun, "f1": "F1"}).astype({task.noun: int})
        classes = table(class_scores, f"In percent, on {results.split}", METRICS["f1_macro"].format)
        yield Section("Labels" if task.is_multi_label else "Confusion", findings.classes(results), [classes])
        yield _calibration(results)
    yield _slices(results)
    yield _mistakes(results)
    data_note = "Two texts count as the same if they differ only in case, spaces and ASCII punctuation."
    yield Section("Data", "", [table(_data_table(results), "The rows of each split")], note=data_note)
    versions = Markup("<details><summary>All versions and parameters</summary><pre>{}</pre></details>")
    yield Section("Versions", "", [versions.format(json.dumps(results.provenance, indent=2))])


def _calibration(results: Results) -> Section:
    task = results.task
    lowest_confidence = 0.5 if task.is_binary or task.is_multi_label else 0.0
    picture = charts.plot("reliability", reliability(results.scored), lowest_confidence)
    note = "Confidence is the probability of the prediction. On the dashed line, it is equal to the accuracy. "
    note += findings.certain_predictions(results)
    return Section("Calibration", findings.calibration(results), [picture], picture, note=note)


def _slices(results: Results) -> Section:
    task = results.task
    slices, name = score_slices(task, results.scored), slice_metric(task)
    judged = slices[slices["verdict"] != TOO_FEW].sort_values("value", ascending=METRICS[name].sign > 0, kind="stable")
    worst = judged[:_MAX_SLICES].set_index("slice")
    picture = charts.scores(worst, name, results.details["scores"][name]) if len(worst) else Markup()
    columns = {"n": task.noun, "value": METRICS[name].title, "low": "95% from", "high": "to"}
    rows = slices.set_index(["criterion", "slice"]).rename(columns=columns)
    body = [picture, table(rows, f"Slices of {results.split}, with 95% intervals", METRICS[name].format)]
    note = "F1 is higher in a slice with more examples of the positive class." if task.metrics[0] == "f1" else ""
    return Section("Slices", findings.slices(results, slices), body, picture, note=note)


def table(rows: pd.DataFrame, caption: str, float_format: Callable[[float], str] | None = None) -> Markup:
    """Format a table as HTML. Pandas escapes the texts."""
    with pd.option_context("display.max_colwidth", 100):
        html = rows.to_html(border=0, float_format=float_format, index_names=False, justify="unset", na_rep="?")
    titled = html.replace("<thead>", Markup("<caption>{}</caption><thead>").format(caption), 1)
    region = Markup('<div class="scroll" tabindex="0" role="region" aria-label="{}">{}</div>')
    return region.format(caption, Markup(titled))


def score_table(results: Results) -> pd.DataFrame:
    """Return the scores of each split as texts, with those by which models are compared first."""
    task, threshold, rows = results.task, results.diagnostics["threshold"], {}
    for split, predictions in results.predictions.items():
        group = f"{split} ({len(predictions):,})"
        details = results.diagnostics[split]
        for name in sorted(details["scores"], key=lambda name: name not in task.metrics):
            show = METRICS[name].format
            rows[group, METRICS[name].title] = cells = {"this model": show(details["scores"][name])}
            if name in task.metrics:
                interval = details["intervals"][name]
                cells["95% interval"] = f"{show(interval['low'])} to {show(interval['high'])}"
                cells |= {model: show(value) for model, value in results.simpler_scores(split, name).items()}
        if threshold not in (None, 0.5):  # the threshold with the best F1 on validation
            precision, recall = (f"{100 * (details['at_threshold'][key] or 0):.1f}" for key in ("precision", "recall"))
            rows[group, f"precision and recall at {threshold:.6g}"] = {"this model": f"{precision} and {recall}"}
    return pd.DataFrame.from_dict(rows, orient="index").fillna("")


def _epochs(results: Results) -> pd.DataFrame:
    train, validation = (results.history[results.history["split"] == split] for split in ("train", "validation"))
    kept, epochs = results.training["kept_epoch"], validation.set_index(validation["epoch"].round().astype(int))
    titles = {name: metric.title for name, metric in METRICS.items()} | {"loss": "validation loss"}
    epochs = epochs.drop(columns=["step", "epoch", "split", "score", "lr"]).rename(columns=titles)
    epochs.insert(0, "training loss", train["loss"].groupby(np.ceil(train["epoch"])).mean())
    return epochs.rename({kept: f"{kept} (kept)"}).add_prefix("epoch ", axis="index")


def _mistakes(results: Results) -> Section:
    task, predictions = results.task, results.scored
    texts, positions = predictions.rows[task.text_columns].to_numpy().tolist(), worst_mistakes(task, predictions)
    if not positions:
        return Section("Mistakes", "There are none, because every prediction equals its label.", [])
    article = Markup('<article class="mistake">{}<p class="note">Row {}. {}</p></article>')
    sentences = {position: describe_mistake(task, predictions, position) for position in positions}
    body = [article.format(_MACROS.marked(pieces(texts[n])), predictions.idx[n], sentences[n]) for n in positions]
    shortest = min(positions, key=lambda n: len("".join(texts[n])))
    intro = "These are the predictions that are farthest from their labels. A label may also be wrong."
    picture = Markup('<div class="texts">{}</div>').format(_MACROS.marked(pieces(texts[shortest])))
    return Section("Mistakes", intro, body, picture, finding=sentences[shortest])


def _data_table(results: Results) -> pd.DataFrame:
    task, splits, lengths = results.task, results.card.splits, results.tokenization["splits"]
    header, *rows = label_table(task, results.card)
    longer = "longer than" if results.tokenization["stride"] is None else "truncated to"
    counts = {
        f"{longer} {results.tokenization['max_length']:,} tokens": {n: lengths[n]["truncated"] for n in splits},
        "duplicates of earlier rows": {name: split.repeated for name, split in splits.items()},
        "duplicates with another label": {name: split.contradictory for name, split in splits.items()},
    }
    for leak in results.card.leakage:
        counts.setdefault(f"also in {leak.earlier}", {})[leak.later] = leak.rows
        counts.setdefault(f"with a text in {leak.earlier}", {})[leak.later] = leak.texts
    for title, numbers in counts.items():
        shares = {name: f"{n:,} ({n / splits[name].rows:.1%})" for name, n in numbers.items()}
        rows.append([title, *(shares.get(name, "") for name in task.splits)])
    return pd.DataFrame(rows, columns=header).set_index("")


def _warnings(results: Results) -> list[str]:
    task, split, warnings = results.task, results.split, [*results.card.warnings]
    predictions, rows = results.scored, results.card.splits[split].rows
    for name, counts in results.tokenization["splits"].items():
        if (proportion := counts["truncated"] / counts["rows"]) > MAX_TRUNCATED:
            longer = f"{proportion:.1%} of the {task.noun} are longer than {results.tokenization['max_length']} tokens"
            warnings.append(f"{name}: {longer}, and the model does not read the rest. Raise tokenize.max_length.")
    if len(predictions) < MIN_EXAMPLES:
        remedy = "raise predict.max_samples" if len(predictions) < rows else "run python -m pipeline.folds"
        warnings.append(f"Only {len(predictions)} {split} {task.noun} were scored. To score more, {remedy}.")
    return warnings + caveats(task.metrics, task, split, predictions.labels, results.split_type)
