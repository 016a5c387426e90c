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
        ("someone/tiny@v2", r"someone/tiny at v2: the Hub answered 404 .* Check that this machine can reach the Hub"),
        ("a name that is none", '"a name that is none" is not a name on the Hub'),
        ("./tiny", '"./tiny" is not a name on the Hub'),
        ("a/b/c", '"a/b/c" is not a name on the Hub'),
    ],
)
def test_a_model_that_cannot_be_pinned_is_an_error(name: str, message: str, hub: Hub) -> None:
    with pytest.raises(UserError, match=message):
        pin(name)


def test_a_model_that_the_pretrained_stage_would_reject_is_not_pinned(hub: Hub) -> None:
    """The other files that a model needs are tested in `test_pretrained.py`."""
    del hub.files[f"someone/tiny/{MAIN}/model.safetensors"]
    hub.files[f"someone/tiny/{MAIN}/pytorch_model.bin"] = b"pickle"
    with pytest.raises(UserError, match=r"^someone/tiny has its weights only as pytorch_model\.bin"):
        pin("someone/tiny")


def without_safetensors(hub: Hub) -> dict[str, bytes]:
    """Publish `someone/tiny` with a pickle on its default branch, and return the other files, by their names."""
    files = {key.rsplit("/", 1)[1]: hub.files.pop(key) for key in list(hub.files) if f"someone/tiny/{MAIN}" in key}
    del files["model.safetensors"]
    for name, content in {**files, "pytorch_model.bin": b"pickle"}.items():
        hub.files[f"someone/tiny/{MAIN}/{name}"] = content
    return files


def test_safetensors_come_from_the_newest_pull_request_of_the_conversion_bot(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    files = without_safetensors(hub)
    hub.pull_requests["someone/tiny"] = {1: "SFconvertbot", 2: "SFconvertbot", 4: "mallory"}
    for number in hub.pull_requests["someone/tiny"]:
        hub.branches[f"someone/tiny/refs/pr/{number}"] = commit = str(number) * 40
        for name, content in {**files, "model.safetensors": b"weights"}.items():
            hub.files[f"someone/tiny/{commit}/{name}"] = content
    assert pin("someone/tiny") == f"someone/tiny@{'2' * 40}"
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "pull request 2 by SFconvertbot" in warning and "has not merged" in warning
    assert f"{hub.url}/someone/tiny/discussions/2/files" in warning
    assert pin("someone/tiny@refs/pr/4") == f"someone/tiny@{'4' * 40}", "the user may choose any of them"

    del hub.files[f"someone/tiny/{'2' * 40}/tokenizer.json"]
    with pytest.raises(UserError, match=r"^someone/tiny has no tokenizer\.json"):
        pin("someone/tiny")


@pytest.mark.parametrize("pull_requests", [None, {}, {1: "mallory"}])
def test_without_a_pull_request_of_the_conversion_bot_pickles_are_an_error(
    pull_requests: dict[int, str] | None, hub: Hub
) -> None:
    files = without_safetensors(hub)
    for name, content in {**files, "model.safetensors": b"weights"}.items():
        hub.files[f"someone/tiny/{'1' * 40}/{name}"] = content
    hub.branches["someone/tiny/refs/pr/1"] = "1" * 40
    if pull_requests is not None:
        hub.pull_requests["someone/tiny"] = pull_requests
    with pytest.raises(UserError, match=r"^someone/tiny has its weights only as pytorch_model\.bin"):
        pin("someone/tiny")


def test_pull_requests_are_not_searched_for_a_revision_that_the_user_names(hub: Hub) -> None:
    without_safetensors(hub)
    with pytest.raises(UserError, match="weights only as"):
        pin("someone/tiny@main")
    assert not any("discussions" in request for request in hub.requests)
