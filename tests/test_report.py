"""The report: its content, the same bytes every time, and in a real browser accessible without a network."""

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
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import params_file, run_stage
from huggingface_hub import ModelCard
from playwright.sync_api import Browser, Page, expect, sync_playwright
from report_inputs import ATTACK, SIZES, TASKS, WARNINGS, make, write, write_inputs
from sklearn import metrics as sklearn

from pipeline.core.data_card import DATA_CARD
from pipeline.core.details import parse_details, write_details
from pipeline.core.messages import UserError
from pipeline.core.paths import CLASSIFIER, METRICS_DIR, PREDICTIONS, RAW, SWAPPED
from pipeline.evaluate import evaluate
from pipeline.evaluation.metrics import METRICS, applicable_metrics

TASK = TASKS["pairs"]
PAIRS = {split: SIZES[split] for split in TASK.splits}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    write_inputs(root)
    params_file(root)
    return root


@pytest.fixture(scope="module")
def file(inputs: Path) -> Path:
    make(inputs)
    return inputs / METRICS_DIR / "report.html"


def test_the_same_inputs_give_the_same_bytes(inputs: Path, file: Path) -> None:
    before = file.read_bytes()
    file.unlink()
    done = run_stage("report", inputs, PYTHONHASHSEED=str(random.randrange(1000)))
    assert done.returncode == 0, done.stderr
    assert file.read_bytes() == before


def test_a_report_on_the_first_pairs_says_so(inputs: Path, tmp_path: Path) -> None:
    """As with predict.max_samples."""
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    for file in (tmp_path / PREDICTIONS).glob("test*.parquet"):
        pq.write_table(pq.read_table(file).slice(0, 30), file)
    evaluate(tmp_path / PREDICTIONS, tmp_path / METRICS_DIR)
    page = make(tmp_path)
    assert "of 30 test pairs</h1>" in page
    assert f"the first 30 of {PAIRS['test']} pairs" in page
    assert "The committed baseline has other pairs" in page
    assert "| pairs |" in (tmp_path / METRICS_DIR / "model_card.md").read_text()


def test_the_model_card_has_the_scores_of_both_splits_in_the_hubs_format(inputs: Path, file: Path) -> None:
    text = file.with_name("model_card.md").read_text()
    card = ModelCard(text)
    evaluation = json.loads((inputs / METRICS_DIR / "evaluation.json").read_text())
    intervals = parse_details((inputs / METRICS_DIR / "intervals.json").read_text())
    diagnostics = parse_details((inputs / METRICS_DIR / "diagnostics.json").read_text())
    results = {(result.dataset_split, result.metric_type): result for result in card.data.eval_results}
    assert results.keys() == {(split, name) for split in TASK.scored_splits for name in applicable_metrics(TASK)}
    for (split, name), result in results.items():
        assert result.metric_value == diagnostics[split]["scores"][name]
        assert result.metric_value == evaluation[split].get(name, result.metric_value)
        assert result.dataset_type == "demo"
    assert card.data.pipeline_tag == "text-classification"
    for name in ("accuracy", "f1", "loss"):
        limits = [intervals[split].get(name) for split in TASK.scored_splits]
        ranges = [f" \\({interval['low']:.4f} to {interval['high']:.4f}\\)" if interval else "" for interval in limits]
        cells = [
            rf"\| {evaluation[split][name]:.4f}{interval} "
            for split, interval in zip(TASK.scored_splits, ranges, strict=True)
        ]
        assert re.search("".join(cells), text)
    assert "truncation=True, max_length=96)" in text
    assert json.loads(text.split("```json")[1].split("```")[0]) == json.loads(
        (inputs / CLASSIFIER / "provenance.json").read_text()
    )


def test_the_card_has_what_is_never_predicted_the_number_of_pairs_the_license_and_the_language(
    inputs: Path, file: Path, tmp_path: Path
) -> None:
    before = file.with_name("model_card.md").read_text()
    assert "never predicts" not in before
    assert "the first" not in before
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    provenance = tmp_path / CLASSIFIER / "provenance.json"
    change(provenance, "parameters", max_train_samples=20)
    change(provenance, "checkpoint", license="apache-2.0")
    change(provenance, "data", language="en")
    rewrite(tmp_path / PREDICTIONS / "test.parquet", prediction=[1] * PAIRS["test"])
    evaluate(tmp_path / PREDICTIONS, tmp_path / METRICS_DIR)
    make(tmp_path)
    card = (tmp_path / METRICS_DIR / "model_card.md").read_text()
    entries = ModelCard(card).data
    assert (entries.license, entries.language) == ("apache-2.0", "en")
    n = pq.read_table(tmp_path / PREDICTIONS / "test.parquet")["label"].to_pylist().count(0)
    assert f"never predicts <code>not_equivalent</code> (0 of {n})" in card
    assert "on the first 20 pairs of" in card


def test_the_page_and_the_card_show_every_metric_and_compare_by_the_chosen_ones(inputs: Path, tmp_path: Path) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    evaluate(tmp_path / PREDICTIONS, tmp_path / METRICS_DIR, ["roc_auc", "balanced_accuracy"])
    page = make(tmp_path)
    scores = json.loads((tmp_path / METRICS_DIR / "evaluation.json").read_text())["test"]
    assert f"ROC AUC of {100 * scores['roc_auc']:.1f}% on 60 test pairs" in visible_text(page)
    assert re.findall("accuracy|F1", page.split("Table of other metrics")[1].split("</thead>")[0])
    card = (tmp_path / METRICS_DIR / "model_card.md").read_text()
    assert re.search(r"^\| ROC AUC \| 0\.\d{4} \(0\.\d{4} to ", card, re.M), "with its interval"
    assert re.search(r"^\| accuracy \| 0\.\d{4} \| 0\.\d{4} \|", card, re.M), "without one"


def test_a_baseline_of_other_data_is_not_compared(inputs: Path, tmp_path: Path) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    baseline = json.loads((inputs / METRICS_DIR / "baseline.json").read_text())
    baseline["test"]["n"] += 1
    write(tmp_path / METRICS_DIR / "baseline.json", baseline)
    for split in TASK.scored_splits:
        (tmp_path / PREDICTIONS / f"{split}{SWAPPED}.parquet").unlink()
    evaluate(tmp_path / PREDICTIONS, tmp_path / METRICS_DIR)
    page = make(tmp_path)
    assert "The committed baseline has other pairs or other metrics" in page
    assert "Against the committed baseline" not in page
    assert "swapped" not in page, "predict did not score the pairs with their sentences swapped"


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("metrics/evaluation.json", r'evaluation\.json is missing; run "dvc repro evaluate"'),
        ("metrics/plots/history.csv", r'history\.csv is missing; run "dvc repro train"'),
        ("data/tokenized/lengths.json", r'lengths\.json is missing; run "dvc repro tokenize"'),
        ("models/classifier/provenance.json", r'provenance\.json is missing; run "dvc repro train"'),
        ("metrics/baseline.json", r"baseline\.json is not an evaluation\.json\. Replace it"),
    ],
)
def test_a_missing_input_is_reported_in_one_line(inputs: Path, tmp_path: Path, missing: str, message: str) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    (tmp_path / METRICS_DIR / "report.html").unlink(missing_ok=True)
    (tmp_path / missing).unlink()
    with pytest.raises(UserError, match=message):
        make(tmp_path)
    assert not (tmp_path / METRICS_DIR / "report.html").exists()


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.01, 0.02, "underconfident"),
        (0.98, 0.99, "overconfident"),
    ],
)
def test_confidence_is_judged_against_chance(
    inputs: Path, tmp_path: Path, low: float, high: float, verdict: str
) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    diagnostics = parse_details((inputs / METRICS_DIR / "diagnostics.json").read_text())
    expected = {"accuracy_low": low, "accuracy_high": high, "calibration_error": 0.0234, "calibration_error_high": 0.05}
    diagnostics["test"]["if_calibrated"] = expected
    write_details(tmp_path / METRICS_DIR / "diagnostics.json", diagnostics)
    page = make(tmp_path)
    verdicts = re.findall("overconfident|underconfident|no sign of over- or underconfidence", page)
    assert verdicts == [verdict] * 2, "in the summary and in its section"
    assert re.search(rf"between\s+{100 * low:.1f} and {100 * high:.1f}%", page)
    floor = re.search(
        r"([\d.]+) on average for a perfectly calibrated model with these confidences, and up to\s+([\d.]+)", page
    )
    assert floor
    assert floor.groups() == ("2.3", "5.0")


def change(path: Path, key: str, **changes: Any) -> None:
    """Change entries below a key of a JSON file."""
    content = json.loads(path.read_text())
    content[key] |= changes
    write(path, content)


def test_the_run_is_told_by_what_it_was_asked_for_and_what_that_came_to(
    inputs: Path, file: Path, tmp_path: Path
) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    page = file.read_text()
    assert re.search(r"learning rate 3e-05, batch 16,\s+3 epochs, seed 42, bf16</p>", page)
    entries = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert entries == {
        "learning rate": "3e-05", "batch": "16 pairs", "epochs": "3", "seed": "42", "numeric precision": "bf16",
        "checkpoint": "a local directory", "data": "demo",
    }  # fmt: skip

    provenance = tmp_path / CLASSIFIER / "provenance.json"
    change(provenance, "parameters", gradient_accumulation_steps=2, max_train_samples=20)
    change(provenance, "environment", processes=3)
    files = {"special_tokens_map.json": "0a" * 32}
    change(provenance, "checkpoint", checkpoint="google-bert/bert-base-cased", revision="c" * 40, files=files)
    change(provenance, "data", task="mrpc", dataset="nyu-mll/glue", revision="d" * 40)
    training = parse_details((inputs / METRICS_DIR / "train.json").read_text())
    write_details(tmp_path / METRICS_DIR / "train.json", {**training, "effective_batch_size": 96})
    entries |= {
        "batch": "96 pairs: 16 per device × 2 accumulated × 3 processes",  # noqa: RUF001
        "trained on": "the first 20 pairs",
        "checkpoint": f"google-bert/bert-base-cased@{'c' * 40}",
        "data": f"mrpc, of nyu-mll/glue@{'d' * 40}",
    }
    page = make(tmp_path)
    assert dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page)) == entries
    assert "special_tokens_map.json" in visible_text(page), "the names of files stay as they are"


def rewrite(path: Path, **columns: list[Any]) -> None:
    """Replace columns of a parquet file."""
    table = pq.read_table(path)
    for name, values in columns.items():
        position = table.schema.get_field_index(name)
        table = table.set_column(
            position, table.schema.field(position), pa.array(values, table.schema.field(position).type)
        )
    pq.write_table(table, path)


def test_the_warnings_of_download_stand_at_the_top_and_contradictions_in_a_column(
    inputs: Path, file: Path, tmp_path: Path
) -> None:
    top = file.read_text().split("</header>")[0]
    assert [html.unescape(warning) for warning in re.findall("<li>(.*?)</li>", top)] == WARNINGS
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    assert "with another label" not in visible_text(file.read_text())
    card = json.loads((inputs / RAW / DATA_CARD).read_text())
    card["leakage"][0] |= {"rows": 4321, "contradictory": 1234}
    write(tmp_path / RAW / DATA_CARD, {**card, "warnings": []})
    page = make(tmp_path)
    assert "<li>" not in page.split("</header>")[0]
    assert "download found nothing to warn of" in page
    assert re.search(r"with another label.*4,321\s+1,234", visible_text(page), re.DOTALL)


def f1_and_share(page: str, split: str) -> list[tuple[str, str]]:
    """F1 without its interval, and the share of class 1, of each slice of a split."""
    table = page.split(f'aria-label="Slices of {split}"')[1].split("</table>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in table.split('<th scope="row">')[1:]]
    return [(re.sub("<.*", "", cells[2], flags=re.DOTALL).strip(), cells[3]) for cells in rows]


DASH = "\N{EN DASH}"


def test_a_slice_without_positives_has_a_dash_for_f1(inputs: Path, file: Path, tmp_path: Path) -> None:
    cells = [entry for split in TASK.scored_splits for entry in f1_and_share(file.read_text(), split)]
    assert {f1 == DASH for f1, _ in cells} == {True, False}
    assert all((f1 == DASH) == (share == "0.0%") for f1, share in cells)
    assert "A dash:" in file.read_text()
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    for split in TASK.scored_splits:
        for directory in (RAW, PREDICTIONS):
            rewrite(tmp_path / directory / f"{split}.parquet", label=[1] * PAIRS[split])
    page = make(tmp_path)
    assert DASH not in [f1 for split in TASK.scored_splits for f1, _ in f1_and_share(page, split)]
    assert "A dash:" not in page


def test_without_positives_there_is_no_best_threshold_and_no_recall(inputs: Path, tmp_path: Path) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    for split in TASK.scored_splits:
        for directory in (RAW, PREDICTIONS):
            rewrite(tmp_path / directory / f"{split}.parquet", label=[0] * PAIRS[split])
    evaluate(tmp_path / PREDICTIONS, tmp_path / METRICS_DIR)
    page = make(tmp_path)
    assert "so no threshold has the best F1" in visible_text(page)
    assert row(page, "Table of precision and recall", "test") == ["0.0", DASH]


def test_the_kept_epoch_is_marked_in_the_chart_and_in_the_table(inputs: Path, file: Path, tmp_path: Path) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    training = parse_details((inputs / METRICS_DIR / "train.json").read_text())
    write_details(tmp_path / METRICS_DIR / "train.json", {**training, "kept_epoch": 1})
    for page, kept, step in ((make(tmp_path), "1", "4"), (file.read_text(), "2", "8")):
        assert re.findall(r'<th scope="row">(\d),\u00a0kept', page) == [kept]
        losses = re.search(r'id="losses-specification">(.*?)</script>', page)
        assert losses
        assert re.findall(r'"step": (\d+), "text": "kept"', losses[1])[0] == step


def test_predictions_of_other_pairs_are_rejected(inputs: Path, tmp_path: Path) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    shutil.copy(inputs / PREDICTIONS / "validation.parquet", tmp_path / PREDICTIONS / "test.parquet")
    with pytest.raises(
        UserError, match=r'predictions of test do not match the rows in .*data/raw\. Run "dvc repro predict"'
    ):
        make(tmp_path)
    shutil.copy(inputs / PREDICTIONS / "test.parquet", tmp_path / PREDICTIONS / "test.parquet")
    rewrite(tmp_path / PREDICTIONS / "test.parquet", idx=list(range(1, 61)))  # the same labels, of other rows
    with pytest.raises(UserError, match="predictions of test do not match the rows"):
        make(tmp_path)


@pytest.fixture(scope="module")
def files(file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of each kind of task."""
    reports = {"pairs": file}
    for case in TASKS.keys() - reports:
        root = tmp_path_factory.mktemp(case)
        write_inputs(root, case)
        make(root)
        reports[case] = root / METRICS_DIR / "report.html"
    return reports


def visible_text(page: str) -> str:
    """What a reader sees, in one line."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())


HEADLINES = {
    "pairs": "The model is right in {}% of 60 test pairs",
    "text": "Matthews correlation of {}% on 30 validation texts",
    "mismatched": "The model is right in {}% of 30 validation pairs",
    "classes": "The model is right in {}% of 60 test texts",
    "several": "Micro F1 of {}% on 30 validation pairs",
    "number": "Pearson correlation of {}% on 60 test pairs",
}


@pytest.mark.parametrize("case", TASKS)
def test_a_report_speaks_of_its_kind_of_task(case: str, files: dict[str, Path]) -> None:
    task, page = TASKS[case], files[case].read_text()
    evaluation = json.loads(files[case].with_name("evaluation.json").read_text())
    scores, first = evaluation[task.verdict_split], task.metrics[0]
    heading = re.search("<h1>(.*?)</h1>", page, re.DOTALL)
    assert heading
    assert visible_text(heading[1]) == HEADLINES[case].format(METRICS[first].format(scores[first]))
    text = visible_text(page.replace(ATTACK, ""))
    assert ("whether train has the text too, compared" in text) == (not task.pairs)
    card = files[case].with_name("model_card.md").read_text()
    assert not re.search("paraphras|sentences", text + card, re.IGNORECASE)
    assert bool(re.search(r"\bpairs?\b", text + card)) == task.pairs
    assert ("Word overlap" in text) == ("swapped" in text) == ("differ are marked" in text) == task.pairs
    assert ("Calibration" in text) == (task.problem_type != "regression")
    assert ("Guessing gives the dashed diagonal" in text) == ("positive class" in text or case == "text") == task.binary
    assert ("these are the scores on validation, on which the epoch was chosen too" in text) == (
        task.verdict_split == "validation"
    )
    why = "The labels of test are not known" if task.unlabeled_splits else "The data has no test split"
    assert (why in text) == (task.verdict_split == "validation")
    base = [METRICS[name].format(scores[f"{task.baseline}_{name}"]) for name in task.metrics]
    assert f"gives {', '.join(base[:-1])}{' and ' if base[1:] else ''}{base[-1]}:" in text
    for split in task.scored_splits:
        assert f'aria-label="Slices of {split}"' in page
    assert len(page) < 1_200_000


def row(page: str, table: str, name: str) -> list[str]:
    """The cells of a row of a table."""
    cells = page.split(f'aria-label="{table}"')[1].split("</table>")[0].split(f'<th scope="row">{name}</th>')[1]
    return re.findall(r"<td[^>]*>(.*?)</td>", cells.split("</tr>")[0])


def test_every_slice_column_has_its_rows(files: dict[str, Path]) -> None:
    table = files["classes"].read_text().split('aria-label="Slices of test"')[1].split("</table>")[0]
    assert re.findall(r">Column (\w+)</th>", table) == ["source", "Source"]


def in_short(page: str) -> str:
    return visible_text(page.split("<h3>In short</h3>")[1].split("</ul>")[0])


def test_no_space_between_sentences_is_lost(files: dict[str, Path]) -> None:
    for case, file in files.items():
        body = re.sub(r"<(script|style|article)\b.*?</\1>", "", file.read_text(), flags=re.DOTALL)
        for element in re.findall(r"<(p|li|figcaption)\b[^>]*>(.*?)</\1>", body, re.DOTALL):
            text = html.unescape(re.sub("<[^>]*>", "", re.sub("<code>.*?</code>", "", element[1], flags=re.DOTALL)))
            assert not re.search(r"[a-z)%”][.:;,][A-Za-z“]", text.replace(ATTACK, "")), (case, text)


def test_a_class_that_is_never_predicted_is_named_with_its_examples(files: dict[str, Path], tmp_path: Path) -> None:
    for case, missing in (("mismatched", 2), ("several", 1)):
        assert "Never predicted" not in in_short(files[case].read_text())
        root = shutil.copytree(files[case].parents[1], tmp_path / case)
        file = root / PREDICTIONS / "validation.parquet"
        table = pq.read_table(file)
        predicted = np.array(table["prediction"].to_pylist())
        if predicted.ndim == 1:
            predicted[predicted == missing] = 0
            n = table["label"].to_pylist().count(missing)
        else:
            predicted[:, missing] = 0
            n = sum(labels[missing] for labels in table["label"].to_pylist())
        rewrite(file, prediction=predicted.tolist())
        name = TASKS[case].labels[missing].replace("_", " ")
        assert f"Never predicted on validation: {name} (0 of {n})." in in_short(make(root))


def test_pairs_with_few_words_in_common_have_no_overlap_slices_and_no_marks(
    inputs: Path, file: Path, tmp_path: Path
) -> None:
    assert "<mark>" in file.read_text()
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    for split in ("validation", "test"):
        bodies = ["unlike " * 30] * PAIRS[split]
        rewrite(tmp_path / RAW / f"{split}.parquet", **{TASK.text_columns[1]: bodies})
    page = make(tmp_path)
    assert "<mark>" not in page
    assert "differ are" not in page
    assert "Word overlap" not in page
    assert "share only 0.0% of their words" in visible_text(page)


def test_the_verdicts_in_short_come_with_their_evidence(inputs: Path, tmp_path: Path) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    diagnostics = parse_details((inputs / METRICS_DIR / "diagnostics.json").read_text())
    diagnostics["test"]["confidence"] = 0.8
    unsure = {"accuracy_low": 0.1, "accuracy_high": 0.9, "calibration_error": 0.02, "calibration_error_high": 0.05}
    diagnostics["test"]["if_calibrated"] = unsure
    write_details(tmp_path / METRICS_DIR / "diagnostics.json", diagnostics)
    summary = in_short(make(tmp_path))
    assert "with 60 pairs a gap of up to 70.0 points could not be told from chance" in summary
    assert "The last epoch, 2, has the best validation F1, by 7.0 points" in summary
    diagnostics["test"]["if_calibrated"] = unsure | {"accuracy_low": 0.98, "accuracy_high": 0.99}
    write_details(tmp_path / METRICS_DIR / "diagnostics.json", diagnostics)
    assert "right in 98.0 to 99.0% of these pairs" in in_short(make(tmp_path))


def test_a_worse_slice_is_told_with_its_interval(inputs: Path, tmp_path: Path) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    file = tmp_path / PREDICTIONS / "test.parquet"
    labels = pq.read_table(file)["label"].to_pylist()
    wrong_if_leaked = [1 - label if idx % 3 == 2 else label for idx, label in enumerate(labels)]
    rewrite(file, prediction=wrong_if_leaked)
    evaluate(tmp_path / PREDICTIONS, tmp_path / METRICS_DIR)
    summary = in_short(make(tmp_path))
    assert "the whole pair in train (0.0%, interval 0.0 to 16.1)" in summary
    assert re.search(r"Among \d+ slices one may be so by chance", summary)


def test_a_single_mistake_is_told_in_the_singular(inputs: Path, tmp_path: Path) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    file = tmp_path / PREDICTIONS / "test.parquet"
    labels = pq.read_table(file)["label"].to_pylist()
    position = labels.index(0)
    rewrite(file, prediction=[*labels[:position], 1, *labels[position + 1 :]])
    evaluate(tmp_path / PREDICTIONS, tmp_path / METRICS_DIR)
    assert "1 pair is wrongly called equivalent" in in_short(make(tmp_path))


def test_what_the_best_threshold_would_change_has_an_interval(inputs: Path, file: Path, tmp_path: Path) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    assert "it would change no answer" in visible_text(file.read_text()), (
        "the surest answers of these logits stay the same"
    )
    rewrite(tmp_path / PREDICTIONS / "test.parquet", prediction=[1] * PAIRS["test"])
    evaluate(tmp_path / PREDICTIONS, tmp_path / METRICS_DIR)
    diagnostics = parse_details((tmp_path / METRICS_DIR / "diagnostics.json").read_text())
    moved = visible_text(make(tmp_path)).split("it would move")[1].split("intervals")[0].replace("\N{MINUS SIGN}", "-")
    for name, title in (("accuracy", "accuracy"), ("f1", "F1")):
        match = re.search(rf"{title} by ([-+±\d.]+) points \(([-+±\d.]+) to ([-+±\d.]+)\)", moved)
        assert match
        value, low, high = (float(number.replace("±", "")) for number in match.groups())
        difference = diagnostics["test"]["at_threshold"][name] - diagnostics["test"]["at_half"][name]
        assert value == pytest.approx(100 * difference, abs=0.06)
        assert low < value < high


def test_with_several_labels_the_calibration_is_that_of_the_answers(files: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(files["several"].parents[1], tmp_path, dirs_exist_ok=True)
    diagnostics = parse_details((tmp_path / METRICS_DIR / "diagnostics.json").read_text())
    diagnostics["validation"]["if_calibrated"] |= {"accuracy_low": 0.98, "accuracy_high": 0.99}
    write_details(tmp_path / METRICS_DIR / "diagnostics.json", diagnostics)
    assert "right in 98.0 to 99.0% of these answers" in in_short(make(tmp_path))


def test_a_rise_of_the_loss_is_weighed_against_its_standard_error(inputs: Path, tmp_path: Path) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    history = tmp_path / METRICS_DIR / "plots" / "history.csv"
    summaries = {}
    for loss in ("0.66", "3"):
        header, *rows = (inputs / METRICS_DIR / "plots" / "history.csv").read_text().splitlines()
        rows = [row.replace("validation,0.5,", f"validation,{loss},") for row in rows]
        write(history, "\n".join([header, *rows, ""]))
        summaries[loss] = in_short(make(tmp_path))
    assert "perhaps overfitting from epoch 2" in summaries["0.66"]
    assert ": overfitting from epoch 2" in summaries["3"]
    assert all("two standard errors of a mean loss over 30 pairs" in text for text in summaries.values())
    table = pq.read_table(inputs / PREDICTIONS / "validation.parquet")
    logits = np.column_stack([table["logit_0"], table["logit_1"]])
    losses = np.logaddexp(*logits.T) - logits[np.arange(30), table["label"].to_numpy()]
    assert f"({losses.std() / 30**0.5:.3f} each)" in summaries["3"]


def test_the_mean_error_is_told_in_words(files: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(files["number"].parents[1], tmp_path, dirs_exist_ok=True)
    for shift, words in ((1, "too high"), (-1, "too low"), (0, "neither too high nor too low")):
        for split in ("validation", "test"):
            table = tmp_path / PREDICTIONS / f"{split}.parquet"
            predicted = [label + shift for label in pq.read_table(table)["label"].to_pylist()]
            rewrite(table, prediction=predicted, logit_0=predicted)
        evaluate(tmp_path / PREDICTIONS, tmp_path / METRICS_DIR)
        assert f"on average they are {words}." in (page := visible_text(make(tmp_path)))
    assert "None: every prediction equals its label." in page
    assert "correlations in percent, with" in page


def test_twenty_classes_have_a_matrix_and_a_table(files: dict[str, Path]) -> None:
    page, names = files["classes"].read_text(), TASKS["classes"].labels
    table = pq.read_table(files["classes"].parents[1] / PREDICTIONS / "test.parquet")
    matrix = sklearn.confusion_matrix(table["label"], table["prediction"], labels=range(20))
    rows = [row(page, "Confusion matrix of test", name) for name in names]
    assert [[int(cell or 0) for cell in cells] for cells in rows] == matrix.tolist()
    for number, name in enumerate(names):
        n, precision, recall, f1 = row(page, "Each class of test", name)
        assert int(n) == matrix[number].sum()
        for share, total in ((precision, matrix[:, number].sum()), (recall, matrix[number].sum())):
            assert share == (f"{100 * matrix[number, number] / total:.1f}" if total else DASH)
        assert (f1 == DASH) == (precision == recall == DASH)
    np.fill_diagonal(matrix, 0)
    label, predicted = divmod(int(matrix.argmax()), 20)
    assert f"most often {names[label]} as {names[predicted]} ({matrix.max()})" in visible_text(page)


def test_hundreds_of_classes_have_no_matrix(tmp_path: Path) -> None:
    labels = [f"class {number}" for number in range(300)]
    write_inputs(tmp_path, "classes", {**SIZES, "train": 300, "test": 300}, labels=labels)
    page = make(tmp_path)
    assert "Confusion matrix" not in page
    assert len(re.findall("labeled class", page)) == 40
    assert len(page) < 1_300_000


@pytest.mark.slow
def test_a_large_split_makes_no_large_page(tmp_path: Path) -> None:
    """A point for each row would be megabytes; and train may not fit into memory: it is not read."""
    write_inputs(tmp_path, "number", {**SIZES, "validation": 3000, "test": 20_000})
    (tmp_path / RAW / "train.parquet").unlink()
    assert len((tmp_path / METRICS_DIR / "plots" / "residuals.csv").read_text().splitlines()) == 1 + 2 * 2000
    assert len(make(tmp_path)) < 1_400_000


def test_the_loss_and_the_score_are_those_of_the_run(files: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(files["number"].parents[1], tmp_path, dirs_exist_ok=True)
    training = parse_details((tmp_path / METRICS_DIR / "train.json").read_text())
    write_details(tmp_path / METRICS_DIR / "train.json", {**training, "metric_for_best_model": "loss"})
    page = make(tmp_path)
    assert "squared error" in page
    assert "cross-entropy" not in page
    assert "best validation loss, by 0.100" in visible_text(page)
    assert "chosen by loss on validation" in visible_text(page)


def test_mistakes_name_what_is_wrong_with_them(files: dict[str, Path]) -> None:
    assert "99.9% sure of topic 1 of the forum; the label is topic 0 of the forum." in visible_text(
        files["classes"].read_text()
    )
    several = visible_text(files["several"].read_text())
    assert re.search(r"wrongly given: (rude|off topic|spam) \([\d.]+% sure\)", several)
    assert re.search(r"missed: (rude|off topic|spam) \([\d.]+% sure\)", several)
    table = pq.read_table(files["number"].parents[1] / PREDICTIONS / "test.parquet").to_pydict()
    errors = np.abs(np.subtract(table["prediction"], table["label"]))
    worst = int(errors.argmax())
    first = visible_text(files["number"].read_text()).split("largest errors.")[1].split("Row ")[1]
    assert first.startswith(f"{worst}: label {table['label'][worst]:.4g}, prediction {table['prediction'][worst]:.4g}.")


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("text", "Tells <code>acceptable</code> from <code>unacceptable</code>, given a text."),
        ("mismatched", "Gives a pair of texts one of 3 classes: <code>entailment</code>, "),
        ("several", "Says which of 3 labels a pair of texts has: <code>rude</code>, "),
        ("number", "Gives a pair of texts a number."),
    ],
)
def test_the_model_card_says_what_the_model_does(case: str, sentence: str, files: dict[str, Path]) -> None:
    task, card = TASKS[case], ModelCard(files[case].with_name("model_card.md").read_text())
    assert sentence in card.text
    assert ('"text_pair"' in card.text) == task.pairs
    results = {(result.dataset_split, result.metric_type) for result in card.data.eval_results}
    assert results == {(split, name) for split in task.scored_splits for name in applicable_metrics(task)}
    assert ("no other split has known labels" in card.text) == (task.scored_splits == ["validation"])
    assert ("the scores on validation_mismatched are not" in card.text) == (case == "mismatched")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if not chromium:
        pytest.skip(f"none of {', '.join(names)} is installed to look at the page with")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened(NamedTuple):
    """The page with its charts drawn, its requests, and its console messages and errors."""

    page: Page
    requests: list[str]
    messages: list[str]


def opened(browser: Browser, file: Path, width: int = 1280, scheme: Any = "light") -> Opened:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    requests: list[str] = []
    messages: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector(".chart:not(:has(svg))", state="detached", timeout=20_000)
    return Opened(page, requests, messages)


# Together they have all charts and tables.
VIEWS = [("pairs", 360, "dark"), ("classes", 1280, "light"), ("number", 1024, "light")]


@pytest.fixture(scope="module")
def pairs_page(browser: Browser, file: Path) -> Iterator[Page]:
    """The page of pairs in a large window, for tests that leave it as it was."""
    page = opened(browser, file).page
    yield page
    page.close()


@pytest.fixture(scope="module", params=VIEWS, ids=str)
def view(browser: Browser, files: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Opened]:
    case, width, scheme = request.param
    view = opened(browser, files[case], width, scheme)
    yield view
    view.page.close()


def test_the_page_makes_no_requests_and_logs_no_messages(view: Opened) -> None:
    assert view.requests == [view.page.url.split("#")[0]]
    assert view.messages == []


def test_every_chart_is_drawn_within_its_frame(view: Opened) -> None:
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


UNFOLD = "document.querySelectorAll('details').forEach(details => details.open = true)"


def test_only_the_tables_scroll_sideways_even_on_a_phone(view: Opened) -> None:
    size = view.page.viewport_size
    assert size
    view.page.evaluate(UNFOLD)
    assert view.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    view.page.set_viewport_size({"width": 360, "height": size["height"]})
    assert view.page.evaluate("document.documentElement.scrollWidth") <= 360
    view.page.set_viewport_size(size)


def test_the_scores_fit_a_large_window_without_scrolling(view: Opened) -> None:
    if view.page.viewport_size["width"] < 1000:  # type: ignore[index]
        pytest.skip("on a phone, the table scrolls in its own box")
    region = view.page.get_by_role("region", name="Table of scores")
    assert region.evaluate("region => region.scrollWidth <= region.clientWidth")


def test_the_table_of_contents_stays_in_sight_and_marks_the_section_being_read(view: Opened) -> None:
    page = view.page
    nav, links = page.locator("nav"), page.locator("nav a")
    size = page.viewport_size
    assert size
    for link in [*links.all(), links.first]:
        page.evaluate("anchor => location.hash = anchor", link.get_attribute("href"))
        expect(page.locator("nav [aria-current]")).to_have_text(link.inner_text())
        bar, marked = nav.bounding_box(), link.bounding_box()
        heading = page.locator(f"{link.get_attribute('href')} h2").bounding_box()
        assert bar and marked and heading
        assert bar["y"] == 0
        assert bar["height"] < 50
        assert marked["x"] >= 0
        assert marked["x"] + marked["width"] <= size["width"], "scrolled to in the row of a phone"
        assert bar["height"] <= heading["y"] < size["height"]
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    expect(page.locator("nav [aria-current]")).to_have_text("Versions and checksums")
    page.evaluate("window.scrollTo(0, 0)")
    expect(page.locator("nav [aria-current]")).to_have_text("Scores")


# Each text with its contrast to the background (WCAG 2.2, 1.4.3). A canvas converts any CSS colour to RGBA.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((value, at) => a * value + (1 - a) * below[at]);
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    return over(rgba(getComputedStyle(element).backgroundColor), behind(element.parentElement));
  };
  const luminance = (colour) => colour.map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
    const style = getComputedStyle(element), background = behind(element);
    const colour = over(rgba(element instanceof SVGElement ? style.fill : style.color), background);
    const [low, high] = [luminance(colour), luminance(background)].sort((a, b) => a - b);
    found.push([texts.currentNode.data.trim(), (high + 0.05) / (low + 0.05)]);
  }
  return found;
}"""


def test_all_text_has_a_contrast_of_at_least_4_5(view: Opened) -> None:
    view.page.evaluate(UNFOLD)
    contrasts = view.page.evaluate(CONTRASTS)
    assert len(contrasts) > 300, "the texts of the charts too"
    assert [(text, round(contrast, 2)) for text, contrast in contrasts if contrast < 4.5] == []


def test_the_charts_follow_the_colour_scheme(browser: Browser, file: Path) -> None:
    view = opened(browser, file)
    label = view.page.locator(".chart .role-axis-label text").first
    light = label.evaluate("text => getComputedStyle(text).fill")
    view.page.emulate_media(color_scheme="dark")
    expect(view.page.locator(".chart .role-axis-label text").first).not_to_have_css("fill", light)
    assert view.messages == []
    view.page.close()


def test_the_keyboard_reaches_every_table_and_skips_to_the_content(browser: Browser, file: Path) -> None:
    page = opened(browser, file, width=390).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    regions = page.locator(".scroll").evaluate_all("regions => regions.map(region => region.ariaLabel)")
    assert len(set(regions)) == len(regions) > 10
    reached, unfolded = [], []
    while (tag := page.evaluate("document.activeElement.tagName")) != "BODY":
        if tag == "SUMMARY":
            unfolded.append(page.evaluate("document.activeElement.textContent"))
            page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.ariaLabel"))
    assert [name for name in regions if name not in reached] == []
    assert len(unfolded) == 3
    page.keyboard.press("Shift+Tab")
    while page.evaluate("document.querySelector('main').contains(document.activeElement)"):
        top = page.evaluate("document.activeElement.getBoundingClientRect().top")
        below = page.evaluate("document.querySelector('nav').getBoundingClientRect().bottom")
        assert top > below, "what has the focus is behind the table of contents"
        page.keyboard.press("Shift+Tab")
    page.close()


def test_checksums_parameters_and_the_slices_of_validation_are_folded_but_printed(pairs_page: Page) -> None:
    page = pairs_page
    folded = [
        page.get_by_role("region", name=name, include_hidden=True)
        for name in ("Slices of validation", "Parameters of the training", "The corpus", "Where it was trained")
    ]
    for region in folded:
        expect(region).not_to_be_visible()
    expect(page.get_by_role("region", name="Slices of test")).to_be_visible()
    page.emulate_media(media="print")
    for region in folded:
        expect(region).to_be_visible()
    expect(page.locator("nav")).not_to_be_visible()
    page.emulate_media(media="screen")


def test_a_screen_reader_finds_names_for_everything(pairs_page: Page) -> None:
    page = pairs_page
    assert page.get_by_role("heading", level=1).count() == 1
    levels = [int(name[1]) for name in page.locator("h1, h2, h3").evaluate_all("all => all.map(one => one.tagName)")]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for role in ("img", "table", "region", "article", "navigation"):
        assert page.get_by_role(role).count() > 0  # type: ignore[arg-type]
        for element in page.get_by_role(role).all():  # type: ignore[arg-type]
            expect(element).to_have_accessible_name(re.compile(r"\w"))
    assert page.locator("table:not(:has(caption)), figure:not(:has(figcaption))").count() == 0
    assert page.locator("tbody tr:not(:has(th[scope]))").count() == 0


def test_text_from_the_data_is_escaped(pairs_page: Page) -> None:
    mistake = pairs_page.locator(".mistake").first
    expect(mistake).to_contain_text(ATTACK)
    expect(mistake).to_contain_text("{{ 7 * 7 }}")
    assert mistake.locator("img, script, style").count() == 0
    assert "taken" not in pairs_page.title()


def test_the_page_shows_the_metrics(pairs_page: Page, inputs: Path) -> None:
    page = pairs_page
    test = json.loads((inputs / METRICS_DIR / "evaluation.json").read_text())["test"]
    expect(page.locator("h1")).to_have_text(f"The model is right in {100 * test['accuracy']:.1f}% of 60 test pairs")
    lead = page.locator(".lead")
    expect(lead).to_contain_text(f"gives {100 * test['majority_accuracy']:.1f} and {100 * test['majority_f1']:.1f}")
    expect(lead).to_contain_text("Against the committed baseline it is ±0.0 points of accuracy")
    learning = page.locator("#learning")
    expect(learning).to_contain_text("Still improving. The last epoch, 2, has the best validation F1, by 7.0 points")
    expect(learning).to_contain_text("Stopped early. Training ended after epoch 2 of 3")
    table = pq.read_table(inputs / PREDICTIONS / "test.parquet")
    matrix = sklearn.confusion_matrix(table["label"], table["prediction"])
    assert matrix[0, 1] != matrix[1, 0]
    counts = page.locator("#confusion .scroll").first.locator("strong").all_inner_texts()
    assert list(map(int, counts)) == matrix.ravel().tolist()
    confusion = page.locator("#confusion")
    expect(confusion).to_contain_text(
        f"{matrix[0, 1]} pairs are wrongly called equivalent and {matrix[1, 0]} wrongly not equivalent"
    )
    probability = 1 / (1 + np.exp(np.asarray(table["logit_0"]) - np.asarray(table["logit_1"])))
    threshold = parse_details((inputs / METRICS_DIR / "diagnostics.json").read_text())["threshold"]
    numbers = [
        f"{100 * measure(table['label'], predicted):.1f}"
        for predicted in (table["prediction"], probability >= threshold - 1e-6)
        for measure in (sklearn.precision_score, sklearn.recall_score)
    ]
    expect(page.get_by_role("row", name=f"test {' '.join(numbers)}")).to_be_visible()
    area = 100 * sklearn.roc_auc_score(table["label"], probability)
    expect(page.get_by_role("region", name="Table of other metrics")).to_contain_text(f"{area:.1f}")
    expect(page.get_by_role("columnheader", name=f"recall from {threshold:.3f}")).to_be_visible()
    expect(page.get_by_role("row", name="truncated pairs 7 7 7")).to_be_visible()
    expect(page.get_by_role("row", name="test train 1 3")).to_be_visible()
    page.evaluate(UNFOLD)
    expect(page.get_by_role("row", name='training_args {"label_smoothing_factor": 0.1}')).to_be_visible()
    expect(page.get_by_role("row", name="max_train_samples null")).to_be_visible()
    expect(page.get_by_role("region", name="Parameters of the training")).not_to_contain_text("torch")
    expect(page.locator("#versions")).to_contain_text("a local directory")
    expect(page.locator("#versions")).to_contain_text("0f" * 32)
    first = page.locator(".mistake").first
    expect(first).to_contain_text("Row 0: 99.9% sure of equivalent. With the texts swapped: the other answer")
