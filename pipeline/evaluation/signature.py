"""What a score is of, in one line: scores are comparable where all but the seed and what is compared is the same.

After the signatures of sacreBLEU (Post 2018, https://aclanthology.org/W18-6319).
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


def signature(predictions: Path, task: Task, splits: Mapping[str, Predictions]) -> Signature:
    """The signature of the scores on splits of a directory, which holds the provenance of their model.

    Of a split: how many rows, and a hash of the corpus and of their ids and labels, whatever their order. code: of the
    modules that trained the model. Raises UserError where the provenance is missing.
    """
    provenance = json.loads(require(predictions / PROVENANCE, "predict").read_text(encoding="utf-8"))
    checkpoint, corpus = provenance["checkpoint"], provenance["data"]["sha256"]
    rows = {
        split: f"{len(of.idx)}@{_digest(corpus, task.text_columns, of.idx.tolist(), of.labels.tolist())}"
        for split, of in ((split, unordered.sorted_by_idx()) for split, unordered in splits.items())
    }
    return {
        "task": task.name,
        "metrics": "+".join(task.metrics),
        **rows,
        _SEED: str(provenance["run"]["seed"]),
        "checkpoint": f"{checkpoint['checkpoint']}@{(checkpoint['revision'] or _digest(checkpoint))[:_DIGITS]}",
        "code": provenance["code"][:_DIGITS],
    }


def _digest(*of: Any) -> str:
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def joined(signatures: Mapping[str, Signature]) -> Signature:
    """That of a mean over runs, by their names. Raises UserError where they differ in more than the seed."""
    (first, one), *others = signatures.items()
    for name, other in others:
        if differing := [key for key in {**one, **other} if key != _SEED and one.get(key) != other.get(key)]:
            told = ", ".join(f"{key} {one.get(key)} and {other.get(key)}" for key in differing)
            raise UserError(f"{first} and {name} are scores of different things, and have no mean: {told}")
    return {**one, _SEED: ",".join(of[_SEED] for of in signatures.values())}


def as_line(of: Signature) -> str:
    """For people and for papers, whatever the order of the entries."""
    splits = sorted(of.keys() - {*_FIRST, *_LAST})
    return "|".join(f"{name}:{of[name]}" for name in (*_FIRST, *splits, *_LAST))
