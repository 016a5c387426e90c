"""The plain training loop gives the same losses and weights as the Trainer, or rejects the settings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TinyMaker, engine_outputs, train_model


@pytest.fixture
def train_with(tmp_path: Path, tiny: TinyMaker, tokenized: Callable[..., Path]) -> Callable[..., dict[str, bytes]]:
    """Train with an engine, and return its outputs."""

    def train_with(engine: str, model_type: str = "bert", **changes: Any) -> dict[str, bytes]:
        out, checkpoint = tmp_path / engine, tiny(model_type)
        settings = {"engine": engine, "max_train_samples": 39, "logging_steps": 1, "epochs": 2, **changes}
        train_model(tokenized(checkpoint), checkpoint, out, tmp_path / "checkpoints", **settings)
        return engine_outputs(out)

    return train_with


@pytest.mark.parametrize(
    "settings",
    [
        {
            "model_type": "mpnet", "precision": "bf16", "batch_size": 4,
            "gradient_accumulation_steps": 3, "logging_steps": 2, "group_by_length": False,
        },
        {
            "model_type": "gpt2", "epochs": 8, "early_stopping_patience": 1, "keep": "last", "max_grad_norm": 0.0,
            "lr_scheduler_type": "cosine", "warmup_ratio": 0.2, "seed": 7, "logging_steps": 20,
        },
    ],
    ids=str,
)  # fmt: skip
def test_the_loop_and_the_trainer_give_the_same_bytes(
    settings: dict[str, Any], train_with: Callable[..., dict[str, bytes]]
) -> None:
    """They use dropout. The settings of `runtime` that differ between the two runs must not affect the weights."""
    by_loop = train_with("loop", **settings)
    assert len(by_loop["metrics/plots/history.csv"].splitlines()) > 4
    [summary] = json.loads(by_loop["metrics/train.json"])
    assert (summary["epochs_run"] < summary["epochs"]) == ("early_stopping_patience" in settings)
    assert by_loop == train_with("trainer", **settings, dataloader_num_workers=1, save_steps=3)
