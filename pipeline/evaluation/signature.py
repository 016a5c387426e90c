"""A one-line signature of a score, modeled on sacreBLEU (Post 2018, https://aclanthology.org/W18-6319).

Two scores are comparable if their signatures differ only in the seed and in the setting that is being compared.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError
from pipeline.core.paths import PROVENANCE, require
from pipeline.core.task import Task
from pipeline.evaluation.predictions import Predictions

Signature = dict[str, str]
_DIGITS = 8
_SEED = "seed"
_FIRST, _LAST = ("task", "metrics"), (_SEED, "checkpoint", "code")


def signature(directory: Path, task: Task, splits: Mapping[str, Predictions]) -> Signature:
    """Return the signature of the scores in a directory of predictions.

    The entry of each split consists of the number of examples, and a hash of the corpus, the text columns, and the ids
    and labels of the examples. The order of the examples does not matter. The entry `code` is a hash of the modules
    that trained the model.

    Raises:
        UserError: The provenance is missing.
    """
    provenance = json.loads(require(directory / PROVENANCE, "predict").read_text(encoding="utf-8"))
    checkpoint, corpus = provenance["checkpoint"], provenance["data"]["sha256"]
    entries = {"task": task.name, "metrics": "+".join(task.metrics)}
    for split, predictions in splits.items():
        examples = predictions.sorted_by_idx()
        digest = _digest(corpus, task.text_columns, examples.idx.tolist(), examples.labels.tolist())
        entries[split] = f"{len(examples.idx)}@{digest}"
    return {
        **entries,
        _SEED: str(provenance["parameters"]["seed"]),
        "checkpoint": f"{checkpoint['checkpoint']}@{(checkpoint['revision'] or _digest(checkpoint))[:_DIGITS]}",
        "code": provenance["code"][:_DIGITS],
    }


def _digest(*content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def joined(signatures: Mapping[str, Signature]) -> Signature:
    """Return the signature of a mean over runs.

    Args:
        signatures: The signatures of the runs, keyed by the names of the runs.

    Raises:
        UserError: The signatures differ in more than the seed.
    """
    (first, reference), *rest = signatures.items()
    for name, entries in rest:
        keys = [key for key in {**reference, **entries} if key != _SEED and reference.get(key) != entries.get(key)]
        if keys:
            differences = ", ".join(f"{key} ({reference.get(key)} and {entries.get(key)})" for key in keys)
            raise UserError(f"{first} and {name} cannot be averaged: their score signatures differ in {differences}.")
    return {**reference, _SEED: ",".join(entries[_SEED] for entries in signatures.values())}


def as_line(entries: Signature) -> str:
    """Format a signature for people and for papers, in a fixed order."""
    splits = sorted(entries.keys() - {*_FIRST, *_LAST})
    return "|".join(f"{name}:{entries[name]}" for name in (*_FIRST, *splits, *_LAST))
