"""A one-line signature of a score, modeled on sacreBLEU (Post 2018, https://aclanthology.org/W18-6319).

Two scores are comparable if their signatures differ only in the seed and in the setting that is being compared.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.core.paths import PROVENANCE, read_json
from pipeline.core.task import Task
from pipeline.evaluation.predictions import Predictions

Signature = dict[str, str]
_DIGITS = 8
_FIRST, _LAST = ("task", "metrics"), ("seed", "checkpoint", "code")


def signature(directory: Path, task: Task, splits: Mapping[str, Predictions]) -> Signature:
    """Return the signature of the scores in a directory of predictions.

    The entry of each split consists of the number of examples, and a hash of the corpus, the text columns, and the ids
    and labels of the examples. The entry `code` is a hash of the modules that trained the model.

    Raises:
        UserError: The provenance is missing or damaged.
    """
    provenance = read_json(directory / PROVENANCE, "predict")
    checkpoint, corpus = provenance["checkpoint"], provenance["data"]["sha256"]
    entries = {"task": task.name, "metrics": "+".join(task.metrics)}
    for split, predictions in splits.items():
        ids, labels = predictions.idx.tolist(), predictions.labels.tolist()
        entries[split] = f"{len(ids)}@{digest(corpus, task.text_columns, ids, labels)}"
    return {
        **entries,
        "seed": str(provenance["parameters"]["seed"]),
        "checkpoint": f"{checkpoint['checkpoint']}@{(checkpoint['revision'] or digest(checkpoint))[:_DIGITS]}",
        "code": provenance["code"][:_DIGITS],
    }


def digest(*content: Any) -> str:
    """Return the first digits of a hash of JSON values."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def as_line(entries: Signature) -> str:
    """Format a signature for people and for papers, in a fixed order."""
    splits = sorted(entries.keys() - {*_FIRST, *_LAST})
    return "|".join(f"{name}:{entries[name]}" for name in (*_FIRST, *splits, *_LAST))
