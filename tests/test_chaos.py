"""Kill the pipeline at a few random moments; `make chaos KILLS=50` is the long version."""

import random

import pytest
from chaos import REPRO, TEMP, chaos
from conftest import Project


@pytest.mark.slow
@pytest.mark.parametrize("command", [REPRO, TEMP], ids=" ".join)
def test_a_pipeline_killed_at_random_moments_ends_with_the_same_bytes(
    command: tuple[str, ...], project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"epochs": 20, "early_stopping_patience": 10, "gradient_accumulation_steps": 2, "batch_size": 8}
    for name, value in {**settings, "seed": len(command)}.items():
        project.set(f"train.{name}", str(value))
    project.set("runtime.save_steps", "3")
    project.commit("settings of this test")
    chaos(project.root, project.env, command, kills=4, rng=random.Random(1))
    assert capsys.readouterr().out.count("SIG") == 4
