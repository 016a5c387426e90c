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
            task_name="Paraphrase detection",
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
    negative, positive = map(code, task.labels)
    start = f"{code(checkpoint['checkpoint'])} (commit {checkpoint['revision']})"
    titles |= {"f1": f"F1 of {positive}", "loss": "cross-entropy, nats"}
    rows = [[title, *(f"{evaluation[split][name]:.4f}" for split in task.scored)] for name, title in titles.items()]
    rows.append([task.noun, *(str(evaluation[split]["n"]) for split in task.scored)])
    return _CARD.format(
        front_matter=front_matter.to_yaml(),
        task=code(task.name),
        negative=negative,
        positive=positive,
        start=start if published else "a local checkpoint",
        scores="\n".join(table(["", *task.scored], rows)),
        provenance=json.dumps(provenance, indent=2, sort_keys=True),
    )


_CARD = """---
{front_matter}
---

# Classifier of {task}

Tells whether two sentences say the same: {positive} or {negative}.
Fine-tuned from {start} on the pairs of {task}.

{scores}

```python
from transformers import pipeline

classify = pipeline("text-classification", model="path/to/this/directory")
classify({{"text": "It rained on Monday.", "text_pair": "On Monday, it rained."}})
```

## Limits

- It was trained on pairs like those of {task}. Measure it on your own before you trust it with them.
- The epoch was chosen by its score on validation, which makes that score slightly optimistic. The report of the run
  has intervals, calibration and the pairs that it gets wrong.
- Its probabilities are not calibrated, and its answer can change when the two sentences are swapped.

## Provenance

```json
{provenance}
```
"""
