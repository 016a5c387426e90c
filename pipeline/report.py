"""Write the report and the model card."""

from pathlib import Path

from pipeline.cli import run_stage
from pipeline.core.messages import log
from pipeline.core.output import write_text
from pipeline.core.paths import METRICS_DIR, PREDICTIONS, RAW, TOKENIZED
from pipeline.params import DataParams, Params
from pipeline.reporting.model_card import model_card
from pipeline.reporting.page import page
from pipeline.reporting.results import load_results


def report(raw: Path, tokenized: Path, predictions: Path, metrics: Path, params: DataParams) -> None:
    """Write report.html and model_card.md to `metrics`. Raises UserError if an output of another stage is missing."""
    results = load_results(raw, tokenized, predictions, metrics, data_title(params), params.split.type)
    write_text(metrics / "model_card.md", model_card(results))
    write_text(metrics / "report.html", page(results))
    log.info("wrote %s. Open it in a browser.", metrics / "report.html")


def data_title(params: DataParams) -> str:
    """Return the name of the data in the report and the model card."""
    if params.name is not None:
        return params.name
    if params.task == "hub":
        return str(params.dataset).partition("@")[0]
    return Path(params.directory).resolve().name if params.task == "custom" else params.task


def main(params: Params) -> None:
    report(RAW, TOKENIZED, PREDICTIONS, METRICS_DIR, params.data)


if __name__ == "__main__":
    run_stage("report", main)
