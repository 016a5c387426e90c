"""The report and the model card: true sentences, safe and reproducible files, and pages that everybody can read."""

import html
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from conftest import params_file, replace_columns, run_stage
from huggingface_hub import ModelCard
from playwright.sync_api import Browser, Page, expect, sync_playwright
from report_inputs import (
    ATTACK,
    HOSTILE,
    SIZES,
    TASKS,
    WARNINGS,
    evaluate_inputs,
    load,
    make_report,
    write,
    write_inputs,
)

from pipeline.core.paths import BASELINES, METRICS_DIR, PREDICTIONS, PROVENANCE, TOKENIZATION, TOKENIZED
from pipeline.core.text import aligned, code
from pipeline.evaluation.metrics import METRICS
from pipeline.params import load_params
from pipeline.report import data_title
from pipeline.reporting.charts import training_sizes

MARKUP = "| <img src=x onerror=alert(1)> `tick` @everyone https://example.org [a](b) __b__ #1 &amp; $x$ \\ ---"
TEST = SIZES["test"]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The inputs and the report of each kind of task. Tests must not change them."""
    directory = tmp_path_factory.mktemp("reports")
    for case in TASKS:
        write_inputs(directory / case, case)
        make_report(directory / case)
        params_file(directory / case)
    return {case: directory / case for case in TASKS}


@pytest.fixture
def root(roots: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the inputs for pairs, for tests that change them."""
    return shutil.copytree(roots["pairs"], tmp_path, dirs_exist_ok=True)


def page_of(root: Path) -> str:
    return (root / METRICS_DIR / "report.html").read_text()


def card_of(root: Path) -> ModelCard:
    return ModelCard((root / METRICS_DIR / "model_card.md").read_text())


def visible_text(page: str) -> str:
    """Return the text that a reader sees, in one line."""
    body = re.sub(r"<style\b.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())


def change(path: Path, key: str, **changes: Any) -> None:
    """Change entries under a key of a JSON file."""
    content = json.loads(path.read_text())
    write(path, content | {key: content[key] | changes})


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"data.task": "mrpc"}, "mrpc"),
        ({"data.task": "custom", "data.directory": "files/reviews"}, "reviews"),
        ({"data.task": "hub", "data.dataset": f"owner/name@{'0' * 40}"}, "owner/name"),
        ({"data.task": "mrpc", "data.name": "Film reviews"}, "Film reviews"),
    ],
)
def test_the_title_of_the_data_is_its_name_or_its_source(changes: dict[str, str], title: str, tmp_path: Path) -> None:
    assert data_title(load_params(params_file(tmp_path, changes)).data) == title


def test_the_same_inputs_give_the_same_bytes(root: Path) -> None:
    files = [root / METRICS_DIR / name for name in ("report.html", "model_card.md")]
    before = [file.read_bytes() for file in files]
    for file in files:
        file.unlink()
    done = run_stage("report", root, PYTHONHASHSEED=str(random.randrange(1000)))
    assert done.returncode == 0, done.stderr
    assert [file.read_bytes() for file in files] == before


@pytest.mark.parametrize("case", TASKS)
def test_each_kind_of_task_has_its_headline_its_terms_and_its_pictures(case: str, roots: dict[str, Path]) -> None:
    task, page = TASKS[case], page_of(roots[case])
    results = load(roots[case])
    scores, metric = results.evaluation[task.verdict_split], task.metrics[0]
    [headline] = re.findall("<h1>(.*?)</h1>", page)
    score = METRICS[metric].format(scores[metric])
    assert f"{score}% o" in headline and f"{scores['n']} {task.verdict_split} {task.noun}" in headline
    assert headline.startswith("The model is right on" if metric == "accuracy" else METRICS[metric].title[:1].upper())
    text = visible_text(page.replace(html.escape(ATTACK), "")) + card_of(roots[case]).text
    assert bool(re.search(r"\bpairs?\b", text)) == task.has_pairs
    assert ("Calibration" in text) == (not task.is_regression)
    assert ("validation score" in text.split("Learning")[0]) == (task.verdict_split == "validation")
    assert len(re.findall('<article class="card">', page)) == 6
    assert len(page) < 200_000
    assert "<script" not in page


def test_a_mistake_says_what_is_wrong(roots: dict[str, Path]) -> None:
    texts = {case: visible_text(page_of(root)) for case, root in roots.items()}
    assert (
        "The label is “topic 0 of the forum”, but the model is 99.9% sure of “topic 1 of the forum”" in texts["classes"]
    )
    assert re.search(r"Wrongly predicted: “(rude|off_topic|spam)” \(probability [\d.]+%\)", texts["multi_label"])
    assert re.search(r"The label is [\d.]+, and the prediction is -?[\d.]+", texts["regression"])


def test_warnings_are_folded_and_counted(roots: dict[str, Path]) -> None:
    [(count, items)] = re.findall(r"<summary>(\d+) warnings.*?<ul>(.*?)</ul>", page_of(roots["pairs"]), re.DOTALL)
    warnings = [html.unescape(text) for text in re.findall("<li>(.*?)</li>", items)]
    assert warnings[:2] == WARNINGS and len(warnings) == int(count)
    assert sum("longer than 96 tokens" in text for text in warnings) == 2, "in validation and test, more than 5% are"


def test_a_report_on_the_first_pairs_says_so(root: Path) -> None:
    """With predict.max_samples, the predictions cover only the first pairs."""
    for file in [root / PREDICTIONS / "test.parquet", *root.glob(f"{BASELINES}/*/test.parquet")]:
        pq.write_table(pq.read_table(file).slice(0, 15), file)
    shutil.rmtree(root / BASELINES / "frozen")
    evaluate_inputs(root)
    text = visible_text(make_report(root))
    assert "frozen" not in text, "the model that baseline.frozen=false switches off"
    for fact in ("of 15 test pairs", "first 15 of 120 test pairs", "raise predict.max_samples", "none is judged"):
        assert fact in text


@pytest.mark.parametrize("case", ["pairs", "classes", "regression"])
def test_a_report_on_two_rows_judges_no_slice(case: str, roots: dict[str, Path], tmp_path: Path) -> None:
    root = shutil.copytree(roots[case], tmp_path, dirs_exist_ok=True)
    for directory in (PREDICTIONS, BASELINES / "linear", BASELINES / "frozen"):
        pq.write_table(pq.read_table(root / directory / "test.parquet").slice(0, 2), root / directory / "test.parquet")
    evaluate_inputs(root)
    text = visible_text(make_report(root))
    assert "none is judged" in text and "too few to judge" in text
    assert not re.search(r"\bnan\b|\binf\b|No slice has a clearly", text, re.I)


@pytest.mark.parametrize("label", [0, 1])
def test_a_report_on_equal_labels_makes_no_use_of_scores_that_need_both_classes(label: int, root: Path) -> None:
    for directory in (PREDICTIONS, BASELINES / "linear", BASELINES / "frozen"):
        replace_columns(root / directory / "test.parquet", label=[label] * TEST)
    evaluate_inputs(root, ["roc_auc", "f1"])
    text, names = visible_text(make_report(root)), TASKS["pairs"].labels
    assert "not clearly better than always predicting" in text and "ROC AUC 50.0 0.0 to 100.0" in text
    assert ("F1 0.0 0.0 to 100.0" in text) == (label == 0), "without an example of class 1, F1 is always 0"
    assert f"“{names[label]}” is predicted worst" in text and not re.search(r"\bnan\b", text)


def test_the_card_has_the_scores_the_training_and_the_limits(root: Path) -> None:
    change(root / PREDICTIONS / PROVENANCE, "parameters", max_train_samples=20)
    checkpoint = {"checkpoint": "me/base", "revision": "c" * 40, "license": "apache-2.0"}
    change(root / PREDICTIONS / PROVENANCE, "checkpoint", **checkpoint)
    change(root / PREDICTIONS / PROVENANCE, "data", dataset="nyu-mll/glue", revision="d" * 40, language="en")
    tokenization = json.loads((root / TOKENIZED / TOKENIZATION).read_text())
    write(root / TOKENIZED / TOKENIZATION, tokenization | {"pair_separator": "\n"})
    evaluate_inputs(root, ["roc_auc", "accuracy"])
    make_report(root)
    card, results = card_of(root), load(root)
    data: Any = card.data
    entries = {(entry.dataset_split, entry.metric_type): entry.metric_value for entry in data.eval_results}
    names = [(split, name) for split in ("test", "validation") for name in ("roc_auc", "accuracy")]
    assert entries == {(split, name): results.evaluation[split][name] for split, name in names}
    assert (data.license, data.language, data.base_model) == ("apache-2.0", "en", "me/base")
    interval = results.diagnostics["test"]["intervals"]["roc_auc"]
    value, low, high = (f"{100 * interval[key]:.1f}" for key in ("value", "low", "high"))
    assert f"| test (120) | ROC AUC | {value} | {low} to {high} |" in re.sub(" +", " ", card.text)
    assert "20 training pairs" in card.text and "sample of all 200" in card.text
    assert r'"text_pair": "\nAnother text."' in card.text and "max_length=96" in card.text


def test_names_are_shown_unchanged_and_add_no_markup_to_the_page_and_the_card(tmp_path: Path) -> None:
    labels = [f"no_{ATTACK} {MARKUP}", f"yes {MARKUP}\n---\n# a heading"]
    write_inputs(tmp_path, labels=labels)
    change(tmp_path / PREDICTIONS / PROVENANCE, "checkpoint", checkpoint=f"me/{MARKUP}", revision="0" * 40)
    change(tmp_path / PREDICTIONS / PROVENANCE, "parameters", seed=f"```{MARKUP}")
    replace_columns(tmp_path / PREDICTIONS / "test.parquet", prediction=[0] * TEST)  # never "yes"
    evaluate_inputs(tmp_path)
    page = make_report(tmp_path, name=f"data {MARKUP}")
    assert ATTACK not in page and MARKUP not in page and HOSTILE[1] not in page
    assert labels[0] in html.unescape(page)
    card = card_of(tmp_path)
    body = re.sub(r"^```.*?^```$", "", card.text, flags=re.M | re.S)  # a fenced block has no markup
    assert set(re.findall("</?([^>]*)>", body)) == {"code"}
    assert not re.search(r"[\[\]@]|__|https:|^---|a heading$", body, re.M)
    assert {len(row.strip("|").split("|")) for row in re.findall(r"^\|.*\|$", body, re.M)} == {7}
    for name in (*labels, f"me/{MARKUP}", f"data {MARKUP}"):
        assert code(name) in body


def test_untrusted_text_stays_on_its_line_of_a_table() -> None:
    lines = aligned([["", "A", "B"], ["cpu", "x\x1b]0;t\x07\r\n\u2028\u202eVerdict: B is better", "y"]], "left")
    assert all(line.isprintable() for line in lines)
    assert lines[1] == "cpu  x ]0;t     Verdict: B is better  y"
    assert code("sentence-transformers/all-MiniLM-L6-v2") == "<code>sentence-transformers/all-MiniLM-L6-v2</code>"


@pytest.mark.parametrize(("metric", "curve"), [("f1", True), ("rmse", True), ("f1", False)])
def test_the_chart_of_a_learning_curve_can_be_opened_alone(metric: str, curve: bool) -> None:
    def entry(rows: int, value: float) -> dict[str, Any]:
        return {"rows": rows, "value": value, "low": value - 0.02, "high": value + 0.03}

    points = [
        entry(rows, rows**0.1 / 2.5) | {"scores": [0.6, 0.7], "group": "seeds"} for rows in (160, 320, 640, 1280, 2560)
    ]
    fitted = [entry(rows, rows**0.1 / 2.5) for rows in (160, 640, 2560, 5120)] if curve else []
    drawing = training_sizes({"metric": metric, "points": points, "curve": fitted, "gains": []})
    texts = {element.text for element in ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")}
    assert {"160", "320", "640", "1,280", "2,560"} | ({"5,120"} if curve else set()) <= texts
    assert any(text and text.endswith("%") for text in texts) == (metric == "f1"), "an error is not in percent"
    assert ("stroke-dasharray" in drawing) == curve, "the prediction is dashed"
    assert set(re.findall(r"var\((--\w+)\)", drawing)) <= set(re.findall(r"(--\w+):", drawing)), "it has its own colors"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if not chromium:
        pytest.skip(f"none of {', '.join(names)} is installed, so the page cannot be opened")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=[("pairs", "dark"), ("classes", "light"), ("regression", "light")], ids=str)
def opened(browser: Browser, roots: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Page]:
    """A report in a large window. It fails if the page requests anything, or writes to the console."""
    case, scheme = request.param
    page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme=scheme)
    messages: list[str] = []
    page.on("request", lambda request: messages.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.goto((roots[case] / METRICS_DIR / "report.html").as_uri())
    yield page
    assert messages == [page.url]
    page.close()


def test_the_pictures_fit_on_the_first_screen_and_only_tables_scroll_on_a_phone(opened: Page) -> None:
    for card in opened.locator(".card").all():
        box = card.bounding_box()
        assert box and box["y"] + box["height"] <= 900
    opened.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    for width in (1200, 390):
        opened.set_viewport_size({"width": width, "height": 900})
        assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_a_screen_reader_finds_names_for_everything(opened: Page) -> None:
    assert opened.get_by_role("heading", level=1).count() == 1
    roles: list[Any] = ["img", "region", "navigation"]
    for role in roles:
        assert opened.get_by_role(role).count() > 0
        for element in opened.get_by_role(role).all():
            expect(element).to_have_accessible_name(re.compile(r"\w"))
    assert opened.locator("img, script, section style").count() == 0, "text from the data is not markup"
