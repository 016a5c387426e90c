"""The model card. To publish the model, upload its directory with the card as README.md: the Hub shows it."""

import json

from pipeline.core.task import TRAIN, Task
from pipeline.core.text import code, table
from pipeline.evaluation.metrics import METRICS, applicable_metrics
from pipeline.evaluation.signature import as_line
from pipeline.reporting.learning_curves import LOSSES
from pipeline.reporting.results import Results, never_predicted

_MOST_LABELS = 20  # listed


def model_card(results: Results) -> str:
    """Write the card in the Hub's format, with the scores as `model-index`.

    Source: https://huggingface.co/docs/hub/model-cards
    """
    from huggingface_hub import EvalResult, ModelCardData

    task, data, checkpoint = results.task, results.provenance["data"], results.provenance["checkpoint"]
    dataset = data.get("dataset", task.name)
    regression = task.problem_type == "regression"
    metrics = [*task.metrics, *(name for name in applicable_metrics(task) if name not in task.metrics)]
    eval_results = [
        EvalResult(
            task_type="text-classification",
            task_name="Text regression" if regression else "Text classification",
            dataset_type=dataset,
            dataset_name=task.name,
            dataset_config=data.get("config"),
            dataset_split=split,
            dataset_revision=data.get("revision"),
            metric_type=name,
            metric_name=METRICS[name].title,
            metric_value=results.diagnostics[split]["scores"][name],
        )
        for split in task.scored_splits
        for name in metrics
    ]
    published = checkpoint["revision"] is not None
    front_matter = ModelCardData(
        base_model=checkpoint["checkpoint"] if published else None,
        datasets=[dataset] if "dataset" in data else None,
        eval_results=eval_results,
        language=data.get("language"),
        license=checkpoint.get("license"),
        library_name="transformers",
        metrics=metrics,
        model_name=f"{task.name}-classifier",
        pipeline_tag="text-classification",
    )
    start = f"{code(checkpoint['checkpoint'])} (commit {checkpoint['revision']})"
    return _CARD.format(
        front_matter=front_matter.to_yaml(),
        model_type="Regression" if regression else "Classifier",
        task=code(task.name),
        purpose=_purpose(task),
        noun=task.noun,
        trained_on=_trained_on(results),
        never_predicted=_never_predicted(results),
        start=start if published else "a local checkpoint",
        scores="\n".join(_score_table(results, metrics)),
        signature=code(as_line(results.diagnostics["signature"])),
        chosen=_chosen(task) if results.provenance["parameters"]["keep"] == "best" else "",
        text='{"text": "One text.", "text_pair": "Another text."}' if task.pairs else '"A text."',
        options=", top_k=None" if task.problem_type == "multi_label_classification" else "",
        outputs=_OUTPUTS[task.problem_type],
        swapped=", and its answer can change when the two texts are swapped" if task.pairs else "",
        max_length=results.max_length,
        provenance=json.dumps(results.provenance, indent=2, sort_keys=True),
    )


def _score_table(results: Results, metrics: list[str]) -> list[str]:
    """Return the metrics of each split; the ones that models are compared by, with their 95% intervals."""
    task, rows = results.task, []
    for name in metrics:
        title = f"F1 of {code(task.labels[1])}" if name == "f1" else METRICS[name].title
        row = [title]
        for split in task.scored_splits:
            score, interval = results.diagnostics[split]["scores"][name], results.intervals[split].get(name)
            row.append(f"{score:.4f}" + (f" ({interval['low']:.4f} to {interval['high']:.4f})" if interval else ""))
        rows.append(row)
    evaluations = [results.evaluation[split] for split in task.scored_splits]
    rows.append([LOSSES[task.problem_type], *(f"{evaluation['loss']:.4f}" for evaluation in evaluations)])
    rows.append([task.noun, *(str(evaluation["n"]) for evaluation in evaluations)])
    return table(["", *task.scored_splits], rows)


def _purpose(task: Task) -> str:
    """Return what the model does, in a sentence."""
    text = "a pair of texts" if task.pairs else "a text"
    if task.problem_type == "regression":
        return f"Gives {text} a number."
    if task.binary:
        return f"Tells {code(task.labels[1])} from {code(task.labels[0])}, given {text}."
    names = _listing([code(label) for label in task.labels])
    if task.problem_type == "single_label_classification":
        return f"Gives {text} one of {len(task.labels)} classes: {names}."
    return f"Says which of {len(task.labels)} labels {text} has: {names}."


def _trained_on(results: Results) -> str:
    limit, noun = results.provenance["parameters"]["max_train_samples"], results.task.noun
    return f"the {noun}" if limit is None or limit >= results.card.splits[TRAIN].rows else f"the first {limit:,} {noun}"


def _never_predicted(results: Results) -> str:
    """Write the item of the limits that names what is never predicted, or an empty text."""
    task, split = results.task, results.task.verdict_split
    missing = never_predicted(results.predictions[split], len(task.labels))
    if not missing:
        return ""
    names = _listing([f"{code(task.labels[label])} (0 of {n:,})" for label, n in missing])
    return f"- On {split} it never predicts {names}.\n"


def _listing(names: list[str]) -> str:
    return ", ".join(names if len(names) <= _MOST_LABELS else [*names[:_MOST_LABELS], "..."])


def _chosen(task: Task) -> str:
    """Return what choosing the epoch means for the scores."""
    unbiased = " and ".join(split for split in task.scored_splits if split != "validation")
    also = f"the scores on {unbiased} are not" if unbiased else "no other split has known labels"
    return f"The epoch was chosen by its score on validation, which makes that slightly optimistic; {also}. "


_OUTPUTS = {
    "single_label_classification": "Its probabilities are not calibrated",
    "multi_label_classification": "A label is given from a probability of 0.5 on. The probabilities are not calibrated",
    "regression": "Its numbers are on the scale of the labels that it was trained on, and can lie outside their range",
}

_CARD = """---
{front_matter}
---

# {model_type} of {task}

{purpose}
Fine-tuned from {start} on {trained_on} of {task}.

{scores}

In parentheses are 95% intervals over {noun}.
Signature: {signature}

```python
from transformers import pipeline

classify = pipeline("text-classification", model="path/to/this/directory"{options})
classify({text}, truncation=True, max_length={max_length})
```

## Limits

- It was trained on {noun} like those of {task}. Measure it on your own {noun} before you rely on it.
{never_predicted}- {chosen}The report of the run has intervals and the {noun} that it gets most wrong.
- {outputs}{swapped}.

## Provenance

```json
{provenance}
```
"""
