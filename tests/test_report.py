"""The report: its content, its reproducibility, and its accessibility in a real browser without a network."""

import html
import json
import random
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import params_file, replace_columns, run_stage
from huggingface_hub import ModelCard
from playwright.sync_api import Browser, Page, expect, sync_playwright
from report_inputs import ATTACK, SIZES, TASKS, WARNINGS, evaluate_and_report, make_report, write, write_inputs
from sklearn import metrics as sklearn
from test_markup import HOSTILE as MARKUP

from pipeline.core.data_card import DATA_CARD
from pipeline.core.messages import UserError
from pipeline.core.output import parse_details, write_details
from pipeline.core.paths import LINEAR, METRICS_DIR, PREDICTIONS, PROVENANCE, RAW, TOKENIZATION, TOKENIZED
from pipeline.core.text import code
from pipeline.evaluation.metrics import METRICS, applicable_metrics
from pipeline.params import load_params
from pipeline.report import data_title
from pipeline.reporting.page import training_sizes_page

TASK = TASKS["pairs"]
PAIRS = {split: SIZES[split] for split in TASK.splits}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    write_inputs(root)
    params_file(root)
    return root


@pytest.fixture
def root(inputs: Path, tmp_path: Path) -> Path:
    """A copy of the inputs, for tests that change them."""
    return shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def file(inputs: Path) -> Path:
    make_report(inputs)
    return inputs / METRICS_DIR / "report.html"


def change(path: Path, key: str, **changes: Any) -> None:
    """Change entries under a key of a JSON file."""
    content = json.loads(path.read_text())
    content[key] |= changes
    write(path, content)


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


@pytest.fixture(scope="module")
def other_page(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on the same predictions, for a run with another data name, other settings and other records."""
    root = shutil.copytree(inputs, tmp_path_factory.mktemp("other"), dirs_exist_ok=True)
    provenance = root / PREDICTIONS / PROVENANCE
    change(provenance, "parameters", gradient_accumulation_steps=2, max_train_samples=20)
    change(provenance, "environment", processes=3)
    files = {"special_tokens_map.json": "0a" * 32}
    change(provenance, "checkpoint", checkpoint="google-bert/bert-base-cased", revision="c" * 40, files=files)
    change(provenance, "data", task="mrpc", dataset="nyu-mll/glue", revision="d" * 40)
    training = parse_details((root / METRICS_DIR / "train.json").read_text())
    write_details(root / METRICS_DIR / "train.json", {**training, "effective_batch_size": 96, "kept_epoch": 1})
    card = json.loads((root / RAW / DATA_CARD).read_text())
    card["leakage"][0] |= {"rows": 4321, "contradictory": 1234}
    write(root / RAW / DATA_CARD, {**card, "warnings": []})
    make_report(root, name="Tickets & <calls>")
    return root / METRICS_DIR / "report.html"


@pytest.fixture(scope="module")
def constant_page(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a model that predicts class 1 for every test pair."""
    root = shutil.copytree(inputs, tmp_path_factory.mktemp("constant"), dirs_exist_ok=True)
    change(root / PREDICTIONS / PROVENANCE, "parameters", max_train_samples=20)
    change(root / PREDICTIONS / PROVENANCE, "checkpoint", license="apache-2.0")
    change(root / PREDICTIONS / PROVENANCE, "data", language="en")
    replace_columns(root / PREDICTIONS / "test.parquet", prediction=[1] * PAIRS["test"])
    evaluate_and_report(root)
    return root / METRICS_DIR / "report.html"


def test_the_same_inputs_give_the_same_bytes(inputs: Path, file: Path) -> None:
    before = file.read_bytes()
    file.unlink()
    done = run_stage("report", inputs, PYTHONHASHSEED=str(random.randrange(1000)))
    assert done.returncode == 0, done.stderr
    assert file.read_bytes() == before


def test_a_report_on_the_first_pairs_says_so(root: Path) -> None:
    """With predict.max_samples, the predictions cover only the first pairs."""
    for file in [root / PREDICTIONS / "test.parquet", root / LINEAR / "test.parquet"]:
        pq.write_table(pq.read_table(file).slice(0, 15), file)
    page = evaluate_and_report(root)
    assert "of 15 test pairs</h1>" in page
    assert f"the first 15 of {PAIRS['test']} test pairs" in page
    assert "Raise predict.max_samples" in page and "pipeline.folds" not in page, "folds need all predictions"
    assert "no slice has at least 20 pairs, so none is judged" in findings(page)
    assert "| pairs |" in (root / METRICS_DIR / "model_card.md").read_text()


def test_the_data_name_is_in_the_report_and_on_the_model_card(other_page: Path) -> None:
    assert "pairs of Tickets &amp; &lt;calls&gt;" in other_page.read_text()
    card = ModelCard(other_page.with_name("model_card.md").read_text())
    assert card.data.model_name == "Tickets & <calls> classifier"
    assert "<calls>" not in card.text


def test_the_card_starts_the_second_text_on_a_new_line_if_training_did(root: Path) -> None:
    write(root / TOKENIZED / TOKENIZATION, {"max_length": 96, "pair_separator": "\n"})
    make_report(root)
    assert r'"text_pair": "\nAnother text."' in (root / METRICS_DIR / "model_card.md").read_text()


def test_the_model_card_has_all_scores_in_the_hubs_format(inputs: Path, file: Path, files: dict[str, Path]) -> None:
    for case, task in TASKS.items():
        card = ModelCard(files[case].with_name("model_card.md").read_text())
        assert ('"text_pair"' in card.text) == task.pairs
        results = {(result.dataset_split, result.metric_type) for result in card.data.eval_results}
        assert results == {(split, name) for split in task.scored_splits for name in applicable_metrics(task)}
    text = file.with_name("model_card.md").read_text()
    card = ModelCard(text)
    evaluation = json.loads((inputs / METRICS_DIR / "evaluation.json").read_text())
    diagnostics = parse_details((inputs / METRICS_DIR / "diagnostics.json").read_text())
    for result in card.data.eval_results:
        assert result.metric_value == diagnostics[result.dataset_split]["scores"][result.metric_type]
        assert result.dataset_type == "demo"
    assert card.data.pipeline_tag == "text-classification"
    for name in ("accuracy", "f1"):
        cells = []
        for split in ("test", "validation"):
            score, limits = evaluation[split][name], diagnostics[split]["intervals"][name]
            cells.append(f"| {100 * score:.1f} ({100 * limits['low']:.1f} to {100 * limits['high']:.1f}) ")
        assert "".join(cells) in text, "test comes first"
    assert f"| {evaluation['test']['loss']:.4f} | {evaluation['validation']['loss']:.4f} |" in text
    assert "truncation=True, max_length=96)" in text
    assert json.loads(text.split("```json")[1].split("```")[0]) == json.loads(
        (inputs / PREDICTIONS / PROVENANCE).read_text()
    )


def test_the_card_has_the_never_predicted_class_the_training_size_the_license_and_the_language(
    inputs: Path, file: Path, constant_page: Path
) -> None:
    before, card = (page.with_name("model_card.md").read_text() for page in (file, constant_page))
    assert "never predicts" not in before
    assert "(a random sample of" not in before
    entries = ModelCard(card).data
    assert (entries.license, entries.language) == ("apache-2.0", "en")
    n = pq.read_table(inputs / PREDICTIONS / "test.parquet")["label"].to_pylist().count(0)
    assert f"never predicts <code>not_equivalent</code> (0 of {n} pairs)" in card
    assert "on 20 training pairs of" in card
    assert " (a random sample of all 60)" in card


def test_the_page_and_the_card_put_the_chosen_metrics_first_but_show_every_metric(root: Path) -> None:
    chosen = ["roc_auc", "balanced_accuracy"]
    page = evaluate_and_report(root, chosen)
    scores = json.loads((root / METRICS_DIR / "evaluation.json").read_text())["test"]
    assert f"ROC AUC of {100 * scores['roc_auc']:.1f}% on 60 test pairs" in visible_text(page)
    header = page.split("Table of other metrics")[1].split("</thead>")[0]
    others = [METRICS[name].title for name in applicable_metrics(TASK) if name not in chosen]
    assert re.findall("([^>]+)</th>", header) == others
    card = (root / METRICS_DIR / "model_card.md").read_text()
    assert re.search(r"^\| ROC AUC \| \d\d\.\d \(\d\d\.\d to ", card, re.M), "a chosen metric has its interval"
    assert re.search(r"^\| accuracy \| \d\d\.\d \| \d\d\.\d \|", card, re.M), "another metric has no interval"


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("metrics/evaluation.json", r'evaluation\.json is missing\. Run "dvc repro evaluate"'),
        ("metrics/plots/history.csv", r'history\.csv is missing\. Run "dvc repro train"'),
        ("data/tokenized/lengths.json", r'lengths\.json is missing\. Run "dvc repro tokenize"'),
        ("data/tokenized/tokenization.json", r'tokenization\.json is missing\. Run "dvc repro tokenize"'),
        ("data/predictions/provenance.json", r'provenance\.json is missing\. Run "dvc repro predict"'),
    ],
)
def test_a_missing_input_is_reported_in_one_line(root: Path, missing: str, message: str) -> None:
    (root / METRICS_DIR / "report.html").unlink(missing_ok=True)
    (root / missing).unlink()
    with pytest.raises(UserError, match=message):
        make_report(root)
    assert not (root / METRICS_DIR / "report.html").exists()


@pytest.mark.parametrize(
    ("low", "high", "verdict", "evidence"),
    [
        (0.01, 0.02, "underconfident", "right on 1.0% to 2.0%. Do not"),
        (0.98, 0.99, "overconfident", "right on 98.0% to 99.0%. Do not"),
        (0.1, 0.9, "no sign of over- or underconfidence", "With 60 pairs, however, a gap of up to 70.0 points"),
    ],
)
def test_confidence_is_judged_against_chance(root: Path, low: float, high: float, verdict: str, evidence: str) -> None:
    diagnostics = parse_details((root / METRICS_DIR / "diagnostics.json").read_text())
    expected = {"accuracy_low": low, "accuracy_high": high, "calibration_error": 0.0234, "calibration_error_high": 0.05}
    diagnostics["test"] |= {"confidence": 0.8, "calibration_error": 0.04, "if_calibrated": expected}
    write_details(root / METRICS_DIR / "diagnostics.json", diagnostics)
    page = make_report(root)
    verdicts = re.findall("overconfident|underconfident|no sign of over- or underconfidence", page)
    assert verdicts == [verdict], "each finding is stated once"
    assert evidence in findings(page)
    assert re.search(rf"between\s+{100 * low:.1f}% and {100 * high:.1f}%", page)
    floor = re.search(r"chance alone would make it ([\d.]+) points on average, and less than ([\d.]+) points", page)
    assert floor
    assert floor.groups() == ("2.3", "5.0")


def test_confidences_that_are_wrong_in_both_directions_are_reported(root: Path) -> None:
    diagnostics = parse_details((root / METRICS_DIR / "diagnostics.json").read_text())
    expected = {"accuracy_low": 0, "accuracy_high": 1, "calibration_error": 0.01, "calibration_error_high": 0.05}
    diagnostics["test"] |= {"calibration_error": 0.06, "if_calibrated": expected}
    write_details(root / METRICS_DIR / "diagnostics.json", diagnostics)
    assert "overconfident for some of these pairs and underconfident for others" in findings(make_report(root))


def test_the_report_says_how_the_model_was_trained(file: Path, other_page: Path) -> None:
    page, other = visible_text(file.read_text()), visible_text(other_page.read_text())
    settings = "learning rate 3e-05, batch size 16, 3 epochs, seed 42, bf16"
    assert f"a local base model, fine-tuned on demo: {settings}" in page
    settings = settings.replace("size 16", "size 96")
    assert f"google-bert/bert-base-cased, fine-tuned on a sample of 20 pairs of Tickets & <calls>: {settings}" in other
    entries = ("gradient_accumulation_steps", 2), ("processes", 3), ("revision", "c" * 40), ("revision", "d" * 40)
    for key, value in entries:
        assert f'"{key}": {json.dumps(value)}' in other


def test_download_warnings_are_at_the_top_and_contradictions_have_a_column(file: Path, other_page: Path) -> None:
    page, other = file.read_text(), other_page.read_text()
    warnings, other_warnings = (
        [html.unescape(text) for text in re.findall("<li>(.*?)</li>", text.split("</header>")[0])]
        for text in (page, other)
    )
    assert warnings == [*WARNINGS, *other_warnings]
    *truncation_warnings, size_warning = other_warnings
    assert [text.partition(": 7 of")[0] for text in truncation_warnings] == ["train", "validation", "test"], (
        "in each split, seven pairs are truncated"
    )
    assert size_warning.startswith("test has only 60 pairs") and "pipeline.folds" in size_warning
    assert visible_text(page).count("with a different label") == 1, "only in the table of duplicates"
    assert re.search(r"with a different label.*4,321\s+1,234", visible_text(other), re.DOTALL)


DASH = "\N{EN DASH}"


def test_without_positives_there_is_no_better_threshold_and_no_recall(root: Path) -> None:
    for split in TASK.scored_splits:
        for directory in (RAW, PREDICTIONS):
            replace_columns(root / directory / f"{split}.parquet", label=[0] * PAIRS[split])
    page = evaluate_and_report(root)
    assert "No other threshold gives a better F1 on validation" in visible_text(page)
    assert row(page, "Table of precision and recall", "test") == ["0.0", DASH]


def test_the_kept_epoch_is_marked_in_the_chart_and_in_the_table(file: Path, other_page: Path) -> None:
    for page, kept, step in ((other_page.read_text(), "1", "4"), (file.read_text(), "2", "8")):
        assert re.findall(r'<th scope="row">(\d),\u00a0kept', page) == [kept]
        losses = re.search(r'id="losses-specification">(.*?)</script>', page)
        assert losses
        assert re.findall(r'"step": (\d+), "text": "kept"', losses[1])[0] == step


def test_predictions_for_different_pairs_are_rejected(inputs: Path, root: Path) -> None:
    shutil.copy(inputs / PREDICTIONS / "validation.parquet", root / PREDICTIONS / "test.parquet")
    with pytest.raises(
        UserError, match=r'data/raw/test\.parquet does not match the predictions of test\. Run "dvc repro predict"'
    ):
        make_report(root)
    shutil.copy(inputs / PREDICTIONS / "test.parquet", root / PREDICTIONS / "test.parquet")
    # The labels match, but the rows do not.
    replace_columns(root / PREDICTIONS / "test.parquet", idx=list(range(1, 61)))
    with pytest.raises(UserError, match="does not match the predictions of test"):
        make_report(root)


@pytest.fixture(scope="module")
def files(file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report for each type of task."""
    reports = {"pairs": file}
    for case in TASKS.keys() - reports:
        root = tmp_path_factory.mktemp(case)
        write_inputs(root, case)
        make_report(root)
        reports[case] = root / METRICS_DIR / "report.html"
    return reports


def visible_text(page: str) -> str:
    """Return the text that a reader sees, in one line."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())


HEADLINES = {
    "pairs": "The model is right on {}% of 60 test pairs",
    "text": "Matthews correlation of {}% on 30 validation texts",
    "mismatched": "The model is right on {}% of 30 validation pairs",
    "classes": "The model is right on {}% of 60 test texts",
    "multi_label": "Micro F1 of {}% on 30 validation pairs",
    "regression": "Pearson correlation of {}% on 60 test pairs",
}


@pytest.mark.parametrize("case", TASKS)
def test_a_report_uses_the_terms_of_its_type_of_task(case: str, files: dict[str, Path]) -> None:
    task, page = TASKS[case], files[case].read_text()
    evaluation = json.loads(files[case].with_name("evaluation.json").read_text())
    scores, metric = evaluation[task.verdict_split], task.metrics[0]
    heading = re.search("<h1>(.*?)</h1>", page, re.DOTALL)
    assert heading
    assert visible_text(heading[1]) == HEADLINES[case].format(METRICS[metric].format(scores[metric]))
    text = visible_text(page.replace(ATTACK, ""))
    card = files[case].with_name("model_card.md").read_text()
    assert not re.search("paraphras|sentences", text + card, re.IGNORECASE)
    assert bool(re.search(r"\bpairs?\b", text + card)) == task.pairs
    assert ("Calibration" in text) == (task.problem_type != "regression")
    assert ("Guessing gives the dashed diagonal" in text) == ("The model uses the threshold 0.5" in text) == task.binary
    assert ("because the best epoch was also chosen on validation" in text) == (task.verdict_split == "validation")
    reason = "The labels of test are not known" if task.unlabeled_splits else "The data has no test split"
    assert (reason in text) == (task.verdict_split == "validation")
    base = [
        METRICS[name].format(scores[f"{task.constant_baseline}_{name}"]) + "%" * (METRICS[name].scale != "error")
        for name in task.metrics
    ]
    assert f", gives {', '.join(base[:-1])}{' and ' if base[1:] else ''}{base[-1]}." in text


def row(page: str, table: str, name: str) -> list[str]:
    """Return the cells of a table row."""
    cells = page.split(f'aria-label="{table}"')[1].split("</table>")[0].split(f'<th scope="row">{name}</th>')[1]
    return re.findall(r"<td[^>]*>(.*?)</td>", cells.split("</tr>")[0])


@pytest.fixture
def regression(files: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the inputs of a regression, for tests that change them."""
    return shutil.copytree(files["regression"].parents[1], tmp_path, dirs_exist_ok=True)


def test_if_all_metrics_are_errors_the_chart_of_the_scores_is_left_out(regression: Path) -> None:
    for page, has_chart in ((make_report(regression), True), (evaluate_and_report(regression, ["rmse"]), False)):
        assert ("headline-specification" in page) == has_chart
        assert ("An interval accounts for the random choice of the pairs" in visible_text(page)) == has_chart


def test_every_slice_column_has_its_rows(files: dict[str, Path]) -> None:
    table = files["classes"].read_text().split('aria-label="Slices of test"')[1].split("</table>")[0]
    assert re.findall(r">Column (\w+)</th>", table) == ["source", "Source"]


def test_rows_without_a_value_in_a_slice_column_are_a_slice(regression: Path) -> None:
    replace_columns(regression / RAW / "test.parquet", source=[None, "web"] * 30)
    assert '<th scope="row">source: (none)</th><td class="number">30</td>' in make_report(regression)


def findings(page: str) -> str:
    return visible_text(page.split("<h3>Findings</h3>")[1].split("</ul>")[0])


def test_a_class_that_is_never_predicted_is_named_with_its_number_of_examples(
    files: dict[str, Path], tmp_path: Path
) -> None:
    for case, label in (("mismatched", 2), ("multi_label", 1)):
        assert "Never predicted" not in findings(files[case].read_text())
        root = shutil.copytree(files[case].parents[1], tmp_path / case)
        file = root / PREDICTIONS / "validation.parquet"
        table = pq.read_table(file)
        predicted = np.array(table["prediction"].to_pylist())
        if predicted.ndim == 1:
            predicted[predicted == label] = 0
            n = table["label"].to_pylist().count(label)
        else:
            predicted[:, label] = 0
            n = sum(row_labels[label] for row_labels in table["label"].to_pylist())
        replace_columns(file, prediction=predicted.tolist())
        name = TASKS[case].labels[label]
        assert f"Never predicted on validation: “{name}” (0 of {n} pairs)." in findings(evaluate_and_report(root))


def test_a_worse_slice_is_reported_with_its_interval(root: Path) -> None:
    file = root / PREDICTIONS / "test.parquet"
    labels = pq.read_table(file)["label"].to_pylist()
    wrong_if_leaked = [1 - label if idx % 3 == 2 else label for idx, label in enumerate(labels)]
    replace_columns(file, prediction=wrong_if_leaked)
    summary = findings(evaluate_and_report(root))
    assert "the whole pair in train (0.0%, 95% interval 0.0 to 16.1)" in summary
    assert re.search(r"With \d+ slices, one may look worse by chance", summary)


def test_the_effect_of_the_best_threshold_is_reported(constant_page: Path) -> None:
    diagnostics = parse_details(constant_page.with_name("diagnostics.json").read_text())["test"]
    at_half, at_threshold = diagnostics["scores"], diagnostics["at_threshold"]
    page = visible_text(constant_page.read_text())
    for title, name in (("accuracy", "accuracy"), ("F1", "f1")):
        assert f"{title} would be {100 * at_threshold[name]:.1f}%" in page
        assert f"({100 * at_half[name]:.1f}% with 0.5)" in page


def test_a_threshold_close_to_1_is_not_shown_as_1(root: Path) -> None:
    diagnostics = parse_details((root / METRICS_DIR / "diagnostics.json").read_text())
    write_details(root / METRICS_DIR / "diagnostics.json", {**diagnostics, "threshold": 0.999812})
    assert ">recall at 0.999812<" in make_report(root)


def test_the_gain_over_the_linear_model_is_stated_with_its_interval(root: Path) -> None:
    def lead(predicted: np.ndarray, linear: np.ndarray) -> str:
        replace_columns(root / PREDICTIONS / "test.parquet", prediction=predicted.tolist())
        replace_columns(root / LINEAR / "test.parquet", prediction=linear.tolist())
        text = visible_text(evaluate_and_report(root))
        return text.split("A linear model on the words")[1].split("A 95% confidence")[0]

    labels = pq.read_table(root / PREDICTIONS / "test.parquet")["label"].to_numpy()
    half_right = np.where(np.arange(len(labels)) % 2, labels, 1 - labels)
    assert "differ in too few pairs to say which one" in lead(half_right, half_right)
    assert "the model is worse than the linear model" in lead(half_right, labels)
    assert "the model is not clearly better than the linear model" in lead(half_right, half_right[::-1])
    text = lead(labels, half_right)
    assert "accuracy is 50.0 percentage points higher (95% confidence interval: +" in text
    assert "than the linear model" not in text


def test_a_regression_shows_its_mean_error(regression: Path) -> None:
    for shift, mean_error in ((1, "+1.000"), (0, "+0.000")):
        for split in ("validation", "test"):
            table = regression / PREDICTIONS / f"{split}.parquet"
            predicted = [label + shift for label in pq.read_table(table)["label"].to_pylist()]
            replace_columns(table, prediction=predicted, logit_0=predicted)
        page = visible_text(evaluate_and_report(regression))
        assert f"the mean of prediction minus label is {mean_error}." in page
    assert "There are none, because every prediction equals its label." in page
    assert "(correlations in percent)" in page


def test_a_regression_is_compared_with_the_mean_of_train(regression: Path) -> None:
    replace_columns(regression / RAW / "train.parquet", label=[8.0, 10.0] * (PAIRS["train"] // 2))
    page = visible_text(evaluate_and_report(regression, ["rmse"]))
    assert re.search(r"Always predicting 9, the mean of [^,]*train, gives [4-8]\.\d+\.", page)


def test_the_error_of_a_single_example_has_no_upper_bound(regression: Path) -> None:
    for file in [regression / PREDICTIONS / "test.parquet", regression / LINEAR / "test.parquet"]:
        pq.write_table(pq.read_table(file).slice(0, 1), file)
    page = visible_text(evaluate_and_report(regression, ["rmse"]))
    card = (regression / METRICS_DIR / "model_card.md").read_text()
    for text in (page, card):
        assert re.search(r"\(0\.000 to \N{EN DASH}\)", text)


def test_twenty_classes_have_a_matrix_and_a_table(files: dict[str, Path]) -> None:
    page, names = files["classes"].read_text(), TASKS["classes"].labels
    table = pq.read_table(files["classes"].parents[1] / PREDICTIONS / "test.parquet")
    matrix = sklearn.confusion_matrix(table["label"], table["prediction"], labels=range(20))
    rows = [row(page, "Confusion matrix of test", name) for name in names]
    assert [[int(cell or 0) for cell in cells] for cells in rows] == matrix.tolist()
    for number, name in enumerate(names):
        n, precision, recall, f1 = row(page, "Each class of test", name)
        assert int(n) == matrix[number].sum()
        for percentage, total in ((precision, matrix[:, number].sum()), (recall, matrix[number].sum())):
            assert percentage == (f"{100 * matrix[number, number] / total:.1f}" if total else DASH)
        assert (f1 == DASH) == (precision == recall == DASH)
    np.fill_diagonal(matrix, 0)
    label, predicted = divmod(int(matrix.argmax()), 20)
    assert f"most often “{names[label]}” as “{names[predicted]}” ({matrix.max()})" in visible_text(page)


def test_a_hundred_classes_have_no_matrix(tmp_path: Path) -> None:
    labels = [f"class {number}" for number in range(100)]
    write_inputs(tmp_path, "classes", {**SIZES, "train": 300, "test": 300}, labels=labels)
    page = make_report(tmp_path)
    assert "Confusion matrix" not in page
    assert "pipeline.folds" not in page, "the test split is large enough"
    assert "60 more labels" in page
    assert len(page) < 1_100_000


def test_names_are_shown_unchanged_and_add_no_markup_to_the_page_and_the_card(tmp_path: Path) -> None:
    labels = [f"no_{ATTACK} {MARKUP}", f"yes {MARKUP}\n---\n# a heading"]
    write_inputs(tmp_path, labels=labels)
    provenance = tmp_path / PREDICTIONS / PROVENANCE
    change(provenance, "checkpoint", checkpoint=f"me/{MARKUP}", revision="0" * 40)
    change(provenance, "data", task=f"task {MARKUP}")
    change(provenance, "parameters", seed=f"```{MARKUP}")
    replace_columns(tmp_path / PREDICTIONS / "test.parquet", prediction=[0] * PAIRS["test"])  # never "yes"
    page = evaluate_and_report(tmp_path, name=f"data {MARKUP}")
    assert ATTACK not in page and MARKUP not in page
    assert f"labeled “{labels[0]}”" in html.unescape(page)
    card = ModelCard((tmp_path / METRICS_DIR / "model_card.md").read_text())
    assert f"never predicts {code(labels[1])} (0 of " in card.text
    body = re.sub(r"^```.*?^```$", "", card.text, flags=re.M | re.S)  # a fenced block has no markup
    assert set(re.findall("</?([^>]*)>", body)) == {"code", "details", "summary"}
    assert not re.search(r"[\[\]@]|__|https:|^---|a heading$", body, re.M)
    assert {len(row.strip("|").split("|")) for row in re.findall(r"^\|.*\|$", body, re.M)} == {3}
    for name in (*labels, f"me/{MARKUP}", f"data {MARKUP}"):
        assert code(name) in body


@pytest.mark.slow
def test_a_large_split_does_not_make_a_large_page(tmp_path: Path) -> None:
    """A point for each row would add megabytes. train may not fit into memory, so the report must not read it."""
    write_inputs(tmp_path, "regression", {**SIZES, "validation": 3000, "test": 20_000})
    (tmp_path / RAW / "train.parquet").unlink()
    assert len((tmp_path / METRICS_DIR / "plots" / "residuals.csv").read_text().splitlines()) == 1 + 2 * 2000
    assert len(make_report(tmp_path)) < 1_400_000


def test_the_report_names_the_loss_and_the_metric_of_the_run(regression: Path) -> None:
    training = parse_details((regression / METRICS_DIR / "train.json").read_text())
    write_details(regression / METRICS_DIR / "train.json", {**training, "metric_for_best_model": "loss"})
    page = make_report(regression)
    assert "squared error" in page
    assert "cross-entropy" not in page
    assert "best validation loss, by 0.1" in visible_text(page)
    assert "because it has the best validation loss" in visible_text(page)


def test_mistakes_say_what_is_wrong(files: dict[str, Path]) -> None:
    assert "99.9% sure of “topic 1 of the forum”, but the label is “topic 0 of the forum”." in visible_text(
        files["classes"].read_text()
    )
    multi_label = visible_text(files["multi_label"].read_text())
    assert re.search(r"wrongly predicted: “(rude|off_topic|spam)” \([\d.]+% sure\)", multi_label)
    assert re.search(r"missed: “(rude|off_topic|spam)” \([\d.]+% sure\)", multi_label)
    table = pq.read_table(files["regression"].parents[1] / PREDICTIONS / "test.parquet").to_pydict()
    errors = np.abs(np.subtract(table["prediction"], table["label"]))
    worst = int(errors.argmax())
    mistake = visible_text(files["regression"].read_text()).split("largest errors.")[1].split("Row ")[1]
    label, prediction = (f"{table[name][worst]:.4g}" for name in ("label", "prediction"))
    assert mistake.startswith(f"{worst}: the label is {label}, and the prediction is {prediction}.")


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


class OpenedPage(NamedTuple):
    """A page with its charts drawn, its requests, and its console messages and errors."""

    page: Page
    requests: list[str]
    messages: list[str]


def open_page(browser: Browser, file: Path, width: int = 1280, scheme: Any = "light") -> OpenedPage:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    requests: list[str] = []
    messages: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector(".chart:not(:has(svg))", state="detached", timeout=20_000)
    return OpenedPage(page, requests, messages)


# Together, these views show all charts and tables.
VIEWS = [("pairs", 360, "dark"), ("classes", 1280, "light"), ("regression", 1024, "light")]


@pytest.fixture(scope="module")
def pairs_page(browser: Browser, file: Path) -> Iterator[Page]:
    """The report on pairs in a large window, for tests that leave the page unchanged."""
    page = open_page(browser, file).page
    yield page
    page.close()


@pytest.fixture(scope="module", params=VIEWS, ids=str)
def view(browser: Browser, files: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[OpenedPage]:
    case, width, scheme = request.param
    view = open_page(browser, files[case], width, scheme)
    yield view
    view.page.close()


def test_the_page_makes_no_requests_and_logs_no_messages(view: OpenedPage) -> None:
    assert view.requests == [view.page.url.split("#")[0]]
    assert view.messages == []


def test_every_chart_is_drawn_within_its_frame(view: OpenedPage) -> None:
    charts = view.page.locator(".chart")
    assert charts.count() >= 5
    for chart in charts.all():
        assert chart.locator("svg .mark-symbol path, svg .mark-line path").count() > 0
        frame, legends = chart.bounding_box(), chart.locator("svg .role-legend").all()
        for box in [chart.locator("svg").bounding_box(), *(legend.bounding_box() for legend in legends)]:
            assert frame and box
            assert box["width"] > 0
            assert frame["x"] <= box["x"]
            assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1


EXPAND_ALL = "document.querySelectorAll('details').forEach(details => details.open = true)"


def test_only_the_tables_scroll_sideways_even_on_a_phone(view: OpenedPage) -> None:
    size = view.page.viewport_size
    assert size
    view.page.evaluate(EXPAND_ALL)
    assert view.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    view.page.set_viewport_size({"width": 360, "height": size["height"]})
    assert view.page.evaluate("document.documentElement.scrollWidth") <= 360
    view.page.set_viewport_size(size)


@pytest.mark.parametrize("view", VIEWS[1:], ids=str, indirect=True)
def test_the_scores_fit_a_large_window_without_scrolling(view: OpenedPage) -> None:
    region = view.page.get_by_role("region", name="Table of scores")
    assert region.evaluate("region => region.scrollWidth <= region.clientWidth")


# Returns each text with its contrast to the background (WCAG 2.2, 1.4.3). A canvas converts any CSS color to RGBA.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const blend = ([r, g, b, a], below) => [r, g, b].map((value, index) => a * value + (1 - a) * below[index]);
  const backgroundOf = (element) => {
    if (!element) return [255, 255, 255];
    return blend(rgba(getComputedStyle(element).backgroundColor), backgroundOf(element.parentElement));
  };
  const luminance = (color) => color.map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
  const contrasts = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
    const style = getComputedStyle(element), background = backgroundOf(element);
    const color = blend(rgba(element instanceof SVGElement ? style.fill : style.color), background);
    const [low, high] = [luminance(color), luminance(background)].sort((a, b) => a - b);
    contrasts.push([texts.currentNode.data.trim(), (high + 0.05) / (low + 0.05)]);
  }
  return contrasts;
}"""


def test_all_text_has_a_contrast_of_at_least_4_5(view: OpenedPage) -> None:
    view.page.evaluate(EXPAND_ALL)
    contrasts = view.page.evaluate(CONTRASTS)
    assert len(contrasts) > 300, "the text in the charts is included"
    assert [(text, round(contrast, 2)) for text, contrast in contrasts if contrast < 4.5] == []


def test_the_charts_follow_the_color_scheme(pairs_page: Page) -> None:
    errors: list[Any] = []
    pairs_page.on("pageerror", lambda error: errors.append(error))
    label = pairs_page.locator(".chart .role-axis-label text").first
    light = label.evaluate("text => getComputedStyle(text).fill")
    pairs_page.emulate_media(color_scheme="dark")
    expect(label).not_to_have_css("fill", light)
    pairs_page.emulate_media(color_scheme="light")
    expect(label).to_have_css("fill", light)
    assert errors == []


def test_a_screen_reader_finds_names_for_everything(pairs_page: Page) -> None:
    page = pairs_page
    assert page.get_by_role("heading", level=1).count() == 1
    levels = [
        int(name[1])
        for name in page.locator("h1, h2, h3").evaluate_all("headings => headings.map(heading => heading.tagName)")
    ]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for role in ("img", "table", "region", "article", "navigation"):
        assert page.get_by_role(role).count() > 0  # type: ignore[arg-type]
        for element in page.get_by_role(role).all():  # type: ignore[arg-type]
            expect(element).to_have_accessible_name(re.compile(r"\w"))
    assert page.locator("table:not(:has(caption)), figure:not(:has(figcaption))").count() == 0
    assert page.locator("tbody tr:not(:has(th[scope]))").count() == 0
    assert page.locator(".scroll:not([tabindex])").count() == 0  # Only a focused table scrolls by keyboard.
    assert page.locator(".skip[href='#content']").count() == page.locator("#content").count() == 1


def test_text_from_the_data_is_escaped(pairs_page: Page) -> None:
    mistake = pairs_page.locator(".mistake").first
    expect(mistake).to_contain_text(ATTACK)
    expect(mistake).to_contain_text("{{ 7 * 7 }}")
    assert mistake.locator("img, script, style").count() == 0
    assert "taken" not in pairs_page.title()


def test_the_page_shows_the_metrics(pairs_page: Page, inputs: Path) -> None:
    page = pairs_page
    test = json.loads((inputs / METRICS_DIR / "evaluation.json").read_text())["test"]
    _, linear = page.locator(".lead").all()
    expect(linear).to_contain_text(f"gives {100 * test['linear_accuracy']:.1f}% and {100 * test['linear_f1']:.1f}%")
    scores = page.locator("#scores")
    expect(scores).to_contain_text("still improving. The last epoch (2) has the best validation F1, by 7.0 points")
    expect(scores).to_contain_text("stopped early. Early stopping ended the training after epoch 2 of 3")
    table = pq.read_table(inputs / PREDICTIONS / "test.parquet")
    matrix = sklearn.confusion_matrix(table["label"], table["prediction"])
    assert matrix[0, 1] != matrix[1, 0]
    expect(scores).to_contain_text(
        f"{matrix[0, 1]} of the {matrix[0].sum()} pairs labeled “not_equivalent” are wrongly classified as "
        f"“equivalent”, and {matrix[1, 0]} of the {matrix[1].sum()} pairs labeled “equivalent” are wrongly "
        "classified as “not_equivalent”"
    )
    probability = 1 / (1 + np.exp(np.asarray(table["logit_0"]) - np.asarray(table["logit_1"])))
    threshold = parse_details((inputs / METRICS_DIR / "diagnostics.json").read_text())["threshold"]
    numbers = [
        f"{100 * metric(table['label'], predicted):.1f}"
        for predicted in (table["prediction"], probability >= threshold - 1e-6)
        for metric in (sklearn.precision_score, sklearn.recall_score)
    ]
    expect(page.get_by_role("row", name=f"test {' '.join(numbers)}")).to_be_visible()
    roc_auc = 100 * sklearn.roc_auc_score(table["label"], probability)
    expect(page.get_by_role("region", name="Table of other metrics")).to_contain_text(f"{roc_auc:.1f}")
    expect(page.get_by_role("row", name="truncated pairs 7 7 7")).to_be_visible()
    expect(page.get_by_role("row", name="test train 1 3")).to_be_visible()
    mistake = page.locator(".mistake").first
    expect(mistake).to_contain_text("Row 0: the model is 99.9% sure of “equivalent”.")
    expect(page.locator(".mistake mark").first).to_be_visible()


def learning_curve_content() -> dict[str, Any]:
    """Return the content of a curve.json."""

    def entry(rows: int, value: float) -> dict[str, Any]:
        return {"rows": rows, "value": value, "low": value - 0.02, "high": value + 0.03}

    points = [
        entry(rows, value) | {"group": f"seeds-{rows}", "scores": [value - 0.01, value + 0.01]}
        for rows, value in ((160, 0.6), (320, 0.7), (640, 0.754))
    ]
    return {
        "name": "curve-0-3x2", "caveats": ["The form is <assumed>."], "warnings": ["seeds-160 is <degenerate>"],
        "metric": "f1", "examples": 120, "noun": "texts",
        "points": points, "curve": [entry(rows, rows**0.1 / 2.5) for rows in (160, 300, 640, 900, 1280)],
        "gains": [], "signature": "task:<mine>",
    }  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_the_page_of_a_learning_curve_needs_no_network_and_fits_a_phone(
    width: int, scheme: str, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "curve.html"
    file.write_text(training_sizes_page(learning_curve_content(), ["320 more rows: <a lot>"]))
    page, requests, messages = open_page(browser, file, width, scheme)
    assert (requests, messages) == ([file.as_uri()], [])
    for name in ("symbol", "line", "area", "rule"):
        assert page.locator(f"svg .mark-{name} path, svg .mark-{name} line").count() > 0, name
    assert page.locator("svg .mark-symbol path").count() == 3
    ticks = page.locator("svg .role-axis-label text").all_text_contents()
    assert {"160", "320", "640", "1,280"} <= set(ticks)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for text in ("320 more rows: <a lot>", "seeds-160 is <degenerate>", "The form is <assumed>.", "task:<mine>"):
        expect(page.get_by_text(text)).to_be_visible()
    expect(page.get_by_role("row", name="640 75.4 73.4 to 78.4 74.4, 76.4 seeds-640")).to_be_visible()
    page.close()
