"""Kill the pipeline at a few random moments; `make chaos KILLS=50` is the long version."""

import random

import pytest
from chaos import chaos
from conftest import Project


@pytest.mark.slow
@pytest.mark.parametrize("temp", [False, True], ids=["dvc repro", "dvc exp run --temp"])
def test_a_pipeline_killed_at_random_moments_ends_with_the_same_bytes(
    temp: bool, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"epochs": 20, "early_stopping_patience": 10, "gradient_accumulation_steps": 2, "batch_size": 8}
    for name, value in {**settings, "seed": 1 + temp}.items():
        project.set(f"train.{name}", str(value))
    project.set("runtime.save_steps", "3")
    project.commit("settings of this test")
    chaos(project.root, project.env, kills=4, rng=random.Random(1), temp=temp)
    assert capsys.readouterr().out.count("SIG") == 4
