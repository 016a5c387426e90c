"""`python -m pipeline.pin`, with the Hub's real client and a local server that replaces the Hub."""

from pathlib import Path

import pytest
from conftest import TinyMaker, run_python
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.pin import pin

MAIN, TAGGED = "0123456789abcdef0123456789abcdef01234567", "76543210fedcba9876543210fedcba9876543210"
PULL_REQUEST_COMMIT = "4" * 40


@pytest.fixture
def hub(hub: Hub, tiny: TinyMaker) -> Hub:
    """Add two models to the Hub."""
    for repo in ("someone/tiny", "google-bert/bert-base-uncased"):
        hub.add(repo, MAIN, tiny())
        hub.branches[f"{repo}/main"] = MAIN
    hub.add("someone/tiny", TAGGED, tiny())
    hub.branches["someone/tiny/v1/final"] = TAGGED
    return hub


@pytest.mark.parametrize(
    ("name", "pinned"),
    [
        ("someone/tiny", f"someone/tiny@{MAIN}"),
        ("someone/tiny@v1/final", f"someone/tiny@{TAGGED}"),
        (f"someone/tiny@{TAGGED}", f"someone/tiny@{TAGGED}"),
        ("bert-base-uncased", f"google-bert/bert-base-uncased@{MAIN}"),
        ("an-earlier-name", f"someone/tiny@{MAIN}"),
    ],
)
def test_a_name_is_pinned_to_its_commit_without_fetching_files(name: str, pinned: str, hub: Hub) -> None:
    hub.renamed["an-earlier-name"] = "someone/tiny"
    assert pin(name) == pinned
    assert {request.split("/")[1] for request in hub.requests} == {"api"}


def test_only_the_name_with_its_commit_is_printed_to_stdout(hub: Hub, tmp_path: Path) -> None:
    done = run_python("-m", "pipeline.pin", "someone/tiny", cwd=tmp_path, **hub.env(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"someone/tiny@{MAIN}\n"), done.stderr
    assert "model.safetensors" in done.stderr
    failed = run_python("-m", "pipeline.pin", "./tiny", cwd=tmp_path, **hub.env(tmp_path))
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("someone/tiny@v2", r"someone/tiny at v2: the Hub answered 404 .*reach the Hub"),
        ("a name that is none", '"a name that is none" is not a name on the Hub'),
        ("./tiny", '"./tiny" is not a name on the Hub'),
        ("a/b/c", '"a/b/c" is not a name on the Hub'),
    ],
)
def test_a_model_that_cannot_be_pinned_is_an_error(name: str, message: str, hub: Hub) -> None:
    with pytest.raises(UserError, match=message):
        pin(name)


def test_a_model_with_a_pickle_is_not_pinned_but_its_pull_request_with_safetensors_is(hub: Hub) -> None:
    """The other files that a model needs are tested in `test_pretrained.py`."""
    weights = hub.files.pop(f"someone/tiny/{MAIN}/model.safetensors")
    for key in [key for key in hub.files if key.startswith(f"someone/tiny/{MAIN}/")]:
        hub.files[key.replace(MAIN, PULL_REQUEST_COMMIT)] = hub.files[key]
    hub.files[f"someone/tiny/{PULL_REQUEST_COMMIT}/model.safetensors"] = weights
    hub.branches["someone/tiny/refs/pr/4"] = PULL_REQUEST_COMMIT
    hub.files[f"someone/tiny/{MAIN}/pytorch_model.bin"] = b"pickle"
    with pytest.raises(UserError, match=r"^someone/tiny has its weights only as pytorch_model\.bin.*pull request"):
        pin("someone/tiny")
    assert pin("someone/tiny@refs/pr/4") == f"someone/tiny@{PULL_REQUEST_COMMIT}"
