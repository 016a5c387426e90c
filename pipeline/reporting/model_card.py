"""Write the model card (https://huggingface.co/docs/hub/model-cards). To publish it, upload it as README.md."""

from pipeline.core.text import escaped
from pipeline.evaluation.metrics import METRICS
from pipeline.reporting import findings
from pipeline.reporting.page import TEMPLATES, score_table
from pipeline.reporting.results import Results


def model_card(results: Results) -> str:
    """Return the card in the format of the Hub, with the scores by which models are compared as `model-index`."""
    from huggingface_hub import EvalResult, ModelCardData

    task, data, checkpoint = results.task, results.provenance["data"], results.provenance["checkpoint"]
    dataset = data.get("dataset")
    eval_results = [
        EvalResult(
            task_type="text-classification", dataset_type=dataset or task.name, dataset_name=results.data_name,
            dataset_config=data.get("config"), dataset_split=split, dataset_revision=data.get("revision"),
            metric_type=name, metric_name=METRICS[name].title, metric_value=results.evaluation[split][name],
        )
        for split in results.predictions
        for name in task.metrics
    ]  # fmt: skip
    front_matter = ModelCardData(
        base_model=None if checkpoint["revision"] is None else checkpoint["checkpoint"],
        datasets=[dataset] if dataset else None, eval_results=eval_results,
        language=data.get("language"), license=checkpoint.get("license"), library_name="transformers",
        model_name=f"{results.data_name} {'regressor' if task.is_regression else 'classifier'}",
        pipeline_tag="text-classification",
    )  # fmt: skip
    scores = score_table(results).reset_index(names=["split", "metric"])
    sentences = (findings.errors,) if task.is_regression else (findings.classes, findings.calibration)
    return TEMPLATES.get_template("model_card.md.jinja").render(
        results=results, task=task, provenance=results.provenance, front_matter=front_matter.to_yaml(),
        limits=[escaped(sentence(results)) for sentence in sentences],
        scores=scores.to_markdown(index=False, disable_numparse=True),
    )  # fmt: skip
