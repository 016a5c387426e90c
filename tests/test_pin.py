"""`python -m pipeline.pin`, with the Hub's real client and a local server that replaces the Hub."""

from pathlib import Path

import pytest
from conftest import TinyMaker, run_python
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.pin import pin

MAIN, TAGGED = "0123456789abcdef0123456789abcdef01234567", "76543210fedcba9876543210fedcba9876543210"


@pytest.fixture
def hub(hub: Hub, tiny: TinyMaker) -> Hub:
    """Add two commits of a model to the Hub."""
    for repo, revision, commit in (("someone/tiny", "main", MAIN), ("someone/tiny", "v1/final", TAGGED)):
        hub.add(repo, commit, tiny())
        hub.branches[f"{repo}/{revision}"] = commit
    return hub


@pytest.mark.parametrize(("name", "commit"), [("someone/tiny", MAIN), ("someone/tiny@v1/final", TAGGED)])
def test_only_the_name_with_its_commit_is_printed_to_stdout(name: str, commit: str, hub: Hub, tmp_path: Path) -> None:
    done = run_python("-m", "pipeline.pin", name, cwd=tmp_path, **hub.env(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"someone/tiny@{commit}\n"), done.stderr
    assert "model.safetensors" in done.stderr
    assert {request.split("/")[1] for request in hub.requests} == {"api"}, "no file is fetched"


@pytest.mark.parametrize("name", ["someone/tiny@v2", "a name that is none", "./tiny", "a/b/c"])
def test_a_model_that_cannot_be_pinned_is_an_error(name: str, hub: Hub) -> None:
    with pytest.raises(UserError, match=name.partition("@")[0]):
        pin(name)


def test_a_model_with_a_pickle_is_not_pinned(hub: Hub) -> None:
    del hub.files[f"someone/tiny/{MAIN}/model.safetensors"]
    hub.files[f"someone/tiny/{MAIN}/pytorch_model.bin"] = b"pickle"
    with pytest.raises(UserError, match=r"someone/tiny .*pytorch_model\.bin"):
        pin("someone/tiny")
