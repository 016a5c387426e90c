"""The page of a search: the verdict, what each parameter did, and all trials."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.reporting.templates import scripted


@dataclass(frozen=True)
class SearchResults:
    """What the page shows.

    title: of the score on validation by which trials are ranked. verdict, better, caveats, scores: of the best trial
    (B) beside params.yaml (A), the scores as rows of a table. signatures: of the scores of A and of B. adopt: the
    command that takes B. trials: best first, each with its `number`, `score` (None where it failed), `rung`, `first`,
    its score in the first rung, and `overrides`, text by key. parameters: the values to draw by key, in the order of
    `trials`. scales: to draw them on, by key.
    importances: shares by key, or none. expected: the expected best of 1, 2, ... trials. length: of the
    first rung, as "3 epochs"; empty: the whole training.
    """

    title: str
    verdict: str
    better: bool
    caveats: Sequence[str]
    signatures: Sequence[str]
    scores: Sequence[Sequence[str]]
    adopt: str
    trials: Sequence[Mapping[str, Any]]
    parameters: Mapping[str, Sequence[Any]]
    scales: Mapping[str, Literal["linear", "log", "point"]]
    importances: Mapping[str, float]
    expected: Sequence[float]
    length: str


def search_page(results: SearchResults) -> str:
    """The page as HTML. The same results give the same text."""
    from pipeline.reporting import charts

    drawn = {"expected": charts.expected_best(results.expected, results.title)}
    for key, values in results.parameters.items():
        rows = [
            {"trial": trial["number"], "value": value, "score": trial["first"], "best": at == 0}
            for at, (trial, value) in enumerate(zip(results.trials, values, strict=True))
            if trial["first"] is not None
        ]
        drawn[key.replace(".", "-")] = charts.trials(rows, key, results.title, results.scales[key])
    return scripted("search.html.jinja", {}, charts=drawn, keys=list(results.parameters), **vars(results))
