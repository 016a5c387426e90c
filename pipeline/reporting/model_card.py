"""The model card: README.md of the classifier's directory, which the Hub shows as the page of the model."""

import json
from collections.abc import Mapping
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from pipeline.core.markup import code


def model_card(
    scores: Mapping[str, float],
    labels: list[str],
    data: Mapping[str, Any],
    checkpoint: Mapping[str, Any],
    ingredients: Mapping[str, Any],
) -> str:
    """The card in the Hub's form (https://huggingface.co/docs/hub/model-cards), with its results as `model-index`.

    scores: accuracy, f1 and loss on validation. labels: names of the classes. data, checkpoint: source.json of both.
    ingredients: parameters and environment of the run.
    """
    task, dataset = data["task"], data.get("dataset", data["task"])
    results = [
        EvalResult(
            task_type="text-classification",
            task_name="Paraphrase detection",
            dataset_type=dataset,
            dataset_name=task,
            dataset_config=data.get("config"),
            dataset_split="validation",
            dataset_revision=data.get("revision"),
            metric_type=name,
            metric_name=title,
            metric_value=round(scores[name], 6),
        )
        for name, title in (("accuracy", "Accuracy"), ("f1", f"F1 of {labels[1]}"))
    ]
    published = checkpoint["revision"] is not None
    front_matter = ModelCardData(
        base_model=checkpoint["checkpoint"] if published else None,
        datasets=[dataset] if "dataset" in data else None,
        eval_results=results,
        library_name="transformers",
        metrics=["accuracy", "f1"],
        model_name=f"{task}-classifier",
        pipeline_tag="text-classification",
    )
    pins = {"checkpoint": checkpoint, "data": data, "run": ingredients}
    return _CARD.format(
        front_matter=front_matter.to_yaml(),
        task=code(task),
        negative=code(labels[0]),
        positive=code(labels[1]),
        start=f"{code(checkpoint['checkpoint'])} (commit {checkpoint['revision']})"
        if published
        else "a local checkpoint",
        pins=json.dumps(pins, indent=2, sort_keys=True),
        **scores,
    )


_CARD = """---
{front_matter}
---

# Classifier of {task}

It tells whether two sentences say the same: {positive} or {negative}.
Fine-tuned from {start} on the pairs of {task}.

| on validation | |
|---|---|
| accuracy | {accuracy:.4f} |
| F1 of {positive} | {f1:.4f} |
| cross-entropy, nats | {loss:.4f} |

```python
from transformers import pipeline

classify = pipeline("text-classification", model="path/to/this/directory")
classify({{"text": "It rained on Monday.", "text_pair": "On Monday, it rained."}})
```

## Limits

- It has learnt from pairs like those of {task}. Measure it on your own before you trust it with them.
- The epoch was chosen by its score on validation, which flatters that score a little. The scores on test, with
  intervals, calibration and the pairs it gets wrong, stand in the report of the run.
- Its probabilities are not calibrated, and its answer can change when the two sentences change places.

## What it was made of

```json
{pins}
```
"""
