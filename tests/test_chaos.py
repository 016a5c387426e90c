"""Kill the pipeline at a few random moments; `make chaos KILLS=50` is the long version."""

import random

import pytest
from chaos import chaos
from conftest import Project


@pytest.mark.slow
def test_a_pipeline_killed_at_random_moments_ends_with_the_same_bytes(project: Project) -> None:
    project.set("train.epochs", "20")
    project.set("runtime.save_steps", "3")
    attempts = chaos(project.root, project.env, kills=3, rng=random.Random(1))
    print(*attempts, sep="\n")
    assert attempts[-1].end == "done"
    assert sum(attempt.end.startswith("SIG") for attempt in attempts) == 3
    assert any(attempt.resumed for attempt in attempts)
    assert max(attempt.lost or 0 for attempt in attempts) <= 3
