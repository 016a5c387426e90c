"""`python -m pipeline.pin`, with the Hub's real client and a local server that replaces the Hub."""

import sys

import pytest
from conftest import TinyMaker
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.pin import main, pin

MAIN, TAGGED = "0123456789abcdef0123456789abcdef01234567", "76543210fedcba9876543210fedcba9876543210"


@pytest.fixture
def hub(hub: Hub, tiny: TinyMaker) -> Hub:
    """Add two commits of a model to the Hub."""
    for revision, commit in (("main", MAIN), ("v1/final", TAGGED)):
        hub.add("someone/tiny", commit, tiny())
        hub.branches[f"someone/tiny/{revision}"] = commit
    return hub


def test_only_the_name_with_its_commit_is_printed(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, commit in (("someone/tiny", MAIN), ("someone/tiny@v1/final", TAGGED)):
        monkeypatch.setattr(sys, "argv", ["pin", name])
        main()
        assert capsys.readouterr().out == f"someone/tiny@{commit}\n"


def test_a_model_with_a_pickle_is_not_pinned(hub: Hub) -> None:
    hub.files[f"someone/tiny/{MAIN}/pytorch_model.bin"] = hub.files.pop(f"someone/tiny/{MAIN}/model.safetensors")
    with pytest.raises(UserError, match=r"someone/tiny has no model\.safetensors"):
        pin("someone/tiny")
