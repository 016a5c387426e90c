"""Untrusted text in terminal tables, in Markdown and on the model card."""

import dataclasses
import html
import re
from typing import Any

import pytest
from huggingface_hub import ModelCard

from pipeline.core.data_card import DataCard, SplitCard
from pipeline.core.text import aligned, code
from pipeline.evaluation.metrics import applicable_metrics
from pipeline.reporting.model_card import model_card
from pipeline.reporting.results import Results
from pipeline.sources.demo import DEMO

HOSTILE = "| <img src=x onerror=alert(1)> `tick` @everyone https://example.org [a](b) __b__ #1 &amp; $x$ \\ ---"


def test_cells_stay_on_their_line_and_in_their_columns() -> None:
    lines = aligned([["", "A", "B"], ["cpu", "x\x1b]0;t\x07\r\n\u2028\u202eVerdict: B is better", "y"]], "left")
    assert all(line.isprintable() for line in lines)
    assert lines[1] == "cpu  x ]0;t     Verdict: B is better  y"


def test_code_escapes_all_markup() -> None:
    escaped = re.fullmatch("<code>(.*)</code>", code(HOSTILE + "\n# a heading"))
    assert escaped is not None
    assert html.unescape(escaped[1]) == HOSTILE + " # a heading"
    assert not set(escaped[1].replace("&#", "")) & set("|<>@`[]*_!:#.$&\\")


@pytest.mark.parametrize("name", ["sentence-transformers/all-MiniLM-L6-v2", "not_equivalent"])
def test_an_ordinary_name_stays_readable(name: str) -> None:
    assert code(name) == f"<code>{name}</code>"


def test_names_add_no_markup_to_the_model_card() -> None:
    labels = [f"no {HOSTILE}", f"yes {HOSTILE}\n---\n# a heading"]
    source = {"checkpoint": f"me/{HOSTILE}", "revision": "0" * 40}
    task = dataclasses.replace(DEMO, name=f"pairs {HOSTILE}", labels=labels)
    provenance = {
        "data": {"task": f"pairs {HOSTILE}"},
        "checkpoint": source,
        "parameters": {"keep": "best", "seed": f"```{HOSTILE}", "max_train_samples": None},
    }
    entries = {"accuracy": 0.9, "f1": 0.9, "loss": 0.3, "n": 10}
    entries |= {f"{model}_{name}": 0.6 for model in ("linear", "majority") for name in ("accuracy", "f1")}
    scores = dict.fromkeys(task.scored_splits, entries)
    limits = {split: {name: {"low": 0.8, "high": 0.95} for name in task.metrics} for split in task.scored_splits}
    diagnostics: dict[str, Any] = {
        split: {
            "scores": dict.fromkeys(applicable_metrics(task), 0.9),
            "classes": [{"n": 1, "precision": 0.5}, {"n": 2, "precision": None}],  # never "yes"
        }
        for split in task.scored_splits
    }
    diagnostics["signature"] = dict.fromkeys(("task", "metrics", "seed", "checkpoint", "code"), f"```{HOSTILE}")
    results = Results(
        data_name=f"pairs {HOSTILE}",
        task=task,
        evaluation=scores,
        intervals=limits,
        diagnostics=diagnostics,
        training={},
        max_length=128,
        provenance=provenance,
        card=DataCard(splits={"train": SplitCard(rows=10)}, leakage=[], shifts={}, warnings=[]),
        rows={},
        predictions={},
        plots={},
        lengths={},
    )
    card = ModelCard(model_card(results))
    assert {result.metric_name for result in card.data.eval_results} >= {"accuracy", "F1", "ROC AUC"}
    assert f"never predicts {code(labels[1])} (0 of 2 pairs)" in card.text
    body = re.sub(r"^```.*?^```$", "", card.text, flags=re.M | re.S)  # a fenced block has no markup
    tags = {"code", "details", "summary"}
    assert set(re.findall("</?([^>]*)>", body)) == tags
    assert not re.search(r"[\[\]@]|__|https:|^---|a heading$", body, re.M)
    assert {len(row.strip("|").split("|")) for row in re.findall(r"^\|.*\|$", body, re.M)} == {3}
    for name in (*labels, source["checkpoint"], f"pairs {HOSTILE}"):
        assert code(name) in body
