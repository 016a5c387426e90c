"""Kill the pipeline at a few random moments; `make chaos KILLS=50` is the long version."""

import random

import pytest
from chaos import chaos
from conftest import Project


@pytest.mark.slow
def test_a_pipeline_killed_at_random_moments_ends_with_the_same_bytes(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.set("train.epochs", "20")
    project.set("runtime.save_steps", "3")
    chaos(project.root, project.env, kills=3, rng=random.Random(1))
    assert capsys.readouterr().out.count("SIG") == 3
