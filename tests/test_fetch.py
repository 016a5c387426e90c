"""A file or a repository that the Hub does not send as published is reported in one line with the reason."""

from collections.abc import Callable
from copy import copy

import pytest
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.sources import fetch
from pipeline.sources.fetch import download_file, repo_info

REPO, COMMIT = "someone/tiny", "0123456789abcdef0123456789abcdef01234567"


def download() -> None:
    download_file(REPO, "config.json", COMMIT, "model")


def look_up() -> None:
    repo_info(REPO, COMMIT, "model")


@pytest.fixture
def hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Publish a file, and wait only briefly for an answer."""
    hub.files[f"{REPO}/{COMMIT}/config.json"] = b'{"model_type": "bert"}'
    monkeypatch.setattr(fetch, "_ANSWER_SECONDS", 0.5)
    return hub


def unavailable(request_to_hub: Callable[[], None]) -> str:
    """Return the reason of a request that must fail."""
    with pytest.raises(UserError) as error:
        request_to_hub()
    return str(error.value)


@pytest.mark.parametrize("request_to_hub", [download, look_up])
@pytest.mark.parametrize(
    ("fault", "value", "reason"),
    [
        ("files", {}, "the Hub answered 401 Unauthorized. Check the name and the variable HF_TOKEN."),
        ("files", {f"{REPO}/other/config.json": b"{}"}, "the Hub answered 404"),
        ("token", "hf_secret", "the Hub answered 401 Unauthorized. Check the name and the variable HF_TOKEN."),
        ("failures", [403], "the Hub answered 403 Forbidden. Ask for access"),
        ("stall", 2, "timed out"),
    ],
)
def test_a_failing_hub_is_reported_in_one_line(
    fault: str, value: object, reason: str, request_to_hub: Callable[[], None], hub: Hub
) -> None:
    setattr(hub, fault, copy(value))
    assert reason in unavailable(request_to_hub)


def test_a_file_that_was_damaged_on_the_way_is_not_used(hub: Hub) -> None:
    hub.corrupt = True
    assert "is not the file that the Hub published" in unavailable(download)
    hub.corrupt = False
    download()


@pytest.mark.parametrize("status", [429, 503])
def test_a_temporary_failure_does_not_end_the_run(status: int, hub: Hub) -> None:
    hub.failures = [status]
    download()


def test_a_file_that_the_client_stores_once_for_all_repositories_is_used(hub: Hub) -> None:
    """The client moves a file from the Hub's Xet storage to a directory that all repositories share."""
    path = download_file(REPO, "config.json", COMMIT, "model")
    blob = path.parent / path.readlink()
    shared = path.parents[3] / "shared" / ("ab" * 32)
    shared.parent.mkdir()
    blob.rename(shared)
    blob.symlink_to(shared)
    assert path.resolve() == shared.resolve()
    download()
    path.write_bytes(b'{"model_type": "BERT"}')
    assert "is not the file that the Hub published" in unavailable(download)
    download()


@pytest.mark.parametrize(
    ("constant", "value", "reason"),
    [
        ("HF_HUB_OFFLINE", True, "HF_HUB_OFFLINE"),
        ("ENDPOINT", "http://127.0.0.1:9", "refused"),  # the discard port, which rejects connections at once
    ],
)
def test_without_a_network_the_reason_is_named(
    constant: str, value: object, reason: str, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"huggingface_hub.constants.{constant}", value)
    assert reason in unavailable(look_up)


def test_an_answer_without_a_valid_commit_is_an_error(hub: Hub) -> None:
    """Users paste the output of pin into a command, so it must not contain another command."""
    hub.branches[f"{REPO}/main"] = "main; rm -r ."
    hub.files = {f"{REPO}/main; rm -r ./config.json": b"{}"}
    with pytest.raises(UserError, match="the Hub's answer has no commit"):
        repo_info(REPO, "", "model")
