"""The model card. To publish the model, upload its directory with the card as README.md: the Hub shows it."""

import json
from collections.abc import Mapping
from typing import Any

from pipeline.core.markup import code, table
from pipeline.core.task import Task
from pipeline.evaluation.metrics import METRICS


def model_card(evaluation: Mapping[str, Any], task: Task, provenance: Mapping[str, Any]) -> str:
    """The card in the Hub's form (https://huggingface.co/docs/hub/model-cards), with the scores as `model-index`.

    evaluation: the content of evaluation.json. provenance: as train writes it.
    """
    from huggingface_hub import EvalResult, ModelCardData

    data, checkpoint = provenance["data"], provenance["checkpoint"]
    dataset = data.get("dataset", task.name)
    titles = {name: METRICS[name].title for name in task.metrics}
    results = [
        EvalResult(
            task_type="text-classification",
            task_name="Text classification",
            dataset_type=dataset,
            dataset_name=task.name,
            dataset_config=data.get("config"),
            dataset_split=split,
            dataset_revision=data.get("revision"),
            metric_type=name,
            metric_name=title,
            metric_value=evaluation[split][name],
        )
        for split in task.scored
        for name, title in titles.items()
    ]
    published = checkpoint["revision"] is not None
    front_matter = ModelCardData(
        base_model=checkpoint["checkpoint"] if published else None,
        datasets=[dataset] if "dataset" in data else None,
        eval_results=results,
        library_name="transformers",
        metrics=task.metrics,
        model_name=f"{task.name}-classifier",
        pipeline_tag="text-classification",
    )
    start = f"{code(checkpoint['checkpoint'])} (commit {checkpoint['revision']})"
    if task.binary and "f1" in titles:
        titles["f1"] = f"F1 of {code(task.labels[1])}"
    titles["loss"] = "loss"
    rows = [[title, *(f"{evaluation[split][name]:.4f}" for split in task.scored)] for name, title in titles.items()]
    rows.append([task.noun, *(str(evaluation[split]["n"]) for split in task.scored)])
    text = {"text": "It rained on Monday.", "text_pair": "On Monday, it rained."}
    return _CARD.format(
        front_matter=front_matter.to_yaml(),
        task=code(task.name),
        tells=_tells(task),
        noun=task.noun,
        start=start if published else "a local checkpoint",
        scores="\n".join(table(["", *task.scored], rows)),
        example=json.dumps(text) if task.pairs else json.dumps(text["text"]),
        limits="".join(f"- {limit}\n" for limit in _limits(task)),
        provenance=json.dumps(provenance, indent=2, sort_keys=True),
    )


def _tells(task: Task) -> str:
    """What the model does, in a sentence."""
    what, names = "a pair of texts" if task.pairs else "a text", ", ".join(map(code, task.labels))
    if task.problem_type == "regression":
        return f"Predicts a number for {what}."
    if task.problem_type == "multi_label_classification":
        return f"Tells which of {len(task.labels)} labels {what} has: {names}."
    if task.binary:
        return f"Tells whether {what} is {code(task.labels[1])} or {code(task.labels[0])}."
    return f"Tells which of {len(task.labels)} classes {what} is of: {names}."


def _limits(task: Task) -> list[str]:
    limits = [
        f"It was trained on {task.noun} like those of {code(task.name)}. Measure it on your own before you trust it "
        "with them.",
        "The epoch was chosen by its score on validation, which makes that score slightly optimistic. The report of "
        f"the run has intervals, and the {task.noun} that it gets wrong.",
    ]
    if task.verdict_split == "validation":
        limits.append("The labels of the test split are not known, or there is none: no score is free of that choice.")
    if task.labels:
        limits.append("Its probabilities are not calibrated.")
    if task.pairs:
        limits.append("Its answer can change when the two texts are swapped.")
    return limits


_CARD = """---
{front_matter}
---

# Model of {task}

{tells}
Fine-tuned from {start} on the {noun} of {task}.

{scores}

```python
from transformers import pipeline

classify = pipeline("text-classification", model="path/to/this/directory")
classify({example})
```

## Limits

{limits}
## Provenance

```json
{provenance}
```
"""
