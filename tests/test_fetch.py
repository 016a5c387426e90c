"""A file or a repository that the Hub does not send is reported in one line with the reason."""

from typing import Any

import pytest
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.sources.fetch import download_file, repo_info

REPO, COMMIT = "someone/tiny", "0123456789abcdef0123456789abcdef01234567"


def download() -> None:
    download_file(REPO, "config.json", COMMIT, "model")


def look_up() -> None:
    repo_info(REPO, COMMIT, "model")


@pytest.fixture
def hub(hub: Hub) -> Hub:
    hub.files[f"{REPO}/{COMMIT}/config.json"] = b"{}"
    return hub


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"files": {}}, "401 Unauthorized.*hf auth login"),
        ({"files": {f"{REPO}/other/config.json": b"{}"}}, "404"),
        ({"failures": [403, 403]}, "403 Forbidden"),
    ],
)
def test_the_answer_of_the_hub_is_reported_in_one_line(fault: dict[str, Any], reason: str, hub: Hub) -> None:
    vars(hub).update(fault)
    for request in (download, look_up):
        with pytest.raises(UserError, match=rf"^{REPO}.* the Hub answered {reason}.*\.$"):
            request()


def test_a_downloaded_file_needs_no_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    download()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    download()
    with pytest.raises(UserError, match=r"other\.json .*HF_HUB_OFFLINE"):
        download_file(REPO, "other.json", COMMIT, "model")


def test_a_failing_connection_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # rejects connections at once
    with pytest.raises(UserError, match="refused"):
        look_up()


def test_an_answer_without_a_valid_commit_is_an_error(hub: Hub) -> None:
    """Users paste the output of pin into a command, so it must not contain another command."""
    hub.branches[f"{REPO}/main"] = "main; rm -r ."
    hub.files = {f"{REPO}/main; rm -r ./config.json": b"{}"}
    with pytest.raises(UserError, match="no commit"):
        repo_info(REPO, "", "model")
