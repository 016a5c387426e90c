"""Stage report: how good the model is, why, and where it fails, on one page; and the model card."""

from pathlib import Path

from pipeline.cli import run
from pipeline.core.messages import log
from pipeline.core.output import write_text
from pipeline.core.packages import REPORT_PACKAGES, REQUIREMENTS, require_locked
from pipeline.core.paths import CLASSIFIER, METRICS, PREDICTIONS, RAW, TOKENIZED
from pipeline.core.tracker import log_scores
from pipeline.params import keys_of, load_params
from pipeline.reporting.model_card import model_card
from pipeline.reporting.page import page
from pipeline.reporting.results import load_results


def report(raw: Path, tokenized: Path, classifier: Path, predictions: Path, metrics: Path, tracker: str) -> None:
    """Write report.html and model_card.md to `metrics`, from the outputs of the other stages.

    The same inputs give the same bytes. `tracker` is sent the scores. Raises UserError where an input is missing or
    does not fit the others.
    """
    results = load_results(raw, tokenized, classifier, predictions, metrics)
    write_text(metrics / "model_card.md", model_card(results))
    write_text(metrics / "report.html", page(results))
    log.info("wrote %s; open it in a browser", metrics / "report.html")
    history = metrics / "plots" / "history.csv"
    names = (*results.task.metrics, "loss")
    scores = {f"{split}/{name}": of[name] for split, of in results.metrics["evaluation"].items() for name in names}
    log_scores(tracker, history, scores, results.metrics["train"]["steps"])


def main() -> None:
    require_locked()
    require_locked(REQUIREMENTS, REPORT_PACKAGES)
    params = load_params()
    report(RAW, TOKENIZED, CLASSIFIER, PREDICTIONS, METRICS, params.runtime.report_to)


if __name__ == "__main__":
    run(main, keys_of("runtime.report_to"))
