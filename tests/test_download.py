"""The download stage: MRPC matches its checksums from every source, and every fault is reported in one line."""

import io
import json
import shutil
import socket
import subprocess
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import data_params, params_file, run_stage
from hub import Hub, serve

from pipeline.core.messages import UserError
from pipeline.download import download
from pipeline.sources import fetch
from pipeline.sources.corpus import rows_sha256
from pipeline.sources.fetch import Unavailable, from_web
from pipeline.sources.glue import HUB_REPO, HUB_REVISION, load_glue
from pipeline.sources.mrpc import ROWS_SHA256

FILES = ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "mrpc_dev_ids.tsv")


@pytest.fixture
def mirror(mrpc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the mirror, for a test to damage."""
    copy = tmp_path / "mirror"
    copy.mkdir()
    for name in FILES:
        shutil.copy(mrpc / name, copy / name)
    monkeypatch.setenv("MRPC_MIRROR", str(copy))
    return copy


def run_download(cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    params_file(cwd, {"data.task": "mrpc"})
    return run_stage("download", cwd, MRPC_MIRROR="", **env)


def test_mrpc_from_the_mirror_matches_its_checksums(mirror: Path, tmp_path: Path) -> None:
    download(tmp_path / "raw", data_params(task="mrpc"))
    for (split, expected), counts in zip(ROWS_SHA256.items(), ((3668, 2474), (408, 279), (1725, 1147)), strict=True):
        table = pq.read_table(tmp_path / "raw" / f"{split}.parquet", columns=["sentence1", "sentence2", "label", "idx"])
        assert (len(table), sum(table["label"].to_pylist())) == counts
        assert rows_sha256(table.to_pandas()) == expected
        features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        assert features["label"]["names"] == ["not_equivalent", "equivalent"]
    validation = pq.read_table(tmp_path / "raw" / "validation.parquet")
    assert validation["idx"][0].as_py() == 9, "as on the Hub, train and validation interleave"


def test_the_same_rows_give_the_same_bytes(mirror: Path, tmp_path: Path) -> None:
    for out in ("one", "two"):
        download(tmp_path / out, data_params(task="mrpc"))
    for split in ROWS_SHA256:
        assert (tmp_path / "one" / f"{split}.parquet").read_bytes() == (
            tmp_path / "two" / f"{split}.parquet"
        ).read_bytes()


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        (FILES[0], lambda text: None, r"msr_paraphrase_train\.txt is missing"),
        (FILES[0], lambda text: text[:-1000], r"msr_paraphrase_train\.txt is truncated: 1046044 of 1047044 bytes"),
        (FILES[1], lambda text: text.replace(b"the", b"teh", 1), "the test rows are altered: sha256"),
        (FILES[2], lambda text: text.replace(b"1", b"2", 1), "train has 3669 rows; it must have 3668"),
        (
            FILES[1],
            lambda text: text.replace(b"\n", b"\textra\n", 5),
            r"msr_paraphrase_test\.txt line 6 has 5 fields; a row has 6",
        ),
        (
            FILES[0],
            lambda text: text.replace(b"\n0\t", b"\n2\t", 1),
            r"train\.txt line 3 has the label '2'; it must be not_equivalent or equivalent or 0 or 1",
        ),
        (FILES[0], lambda text: text.replace(b"\n0\t", b"\n0 ", 1), r"train\.txt line 3 has 4 fields; a row has 5"),
        (FILES[1], lambda text: text.replace(b" he ", b"\xff\xfe  ", 1), r"test\.txt line \d+ is not UTF-8"),
        (FILES[1], lambda text: b"<html>" + b" " * len(text), r"test\.txt line 1 is not the original's header"),
        (FILES[0], lambda text: text.replace(b"\n", b"\r\n"), r"train\.txt has line ends of Windows \(CRLF\)"),
        (FILES[0], lambda text: b"\xff\xfe" + text, r"train\.txt line 1 is not UTF-8"),
        (FILES[0], lambda text: b"\xef\xbb\xbf" + text, r"train\.txt line 1 is not the original's header"),
        (FILES[0], lambda text: text.replace(b"\n0\t", b"\n0\t7\t", 1), r"train\.txt line 3 has 6 fields; a row has 5"),
        (
            FILES[0],
            lambda text: text[:500_000] + bytes([text[500_000] ^ 1]) + text[500_001:],
            "the train rows are altered",
        ),
        (FILES[2], lambda text: text + text[:16], r"mrpc_dev_ids\.tsv names 1 ids twice"),
    ],
)
def test_a_damaged_mirror_is_reported_by_file_and_line(
    mirror: Path, tmp_path: Path, file: str, damage: object, message: str
) -> None:
    text = damage((mirror / file).read_bytes())  # type: ignore[operator]
    (mirror / file).unlink() if text is None else (mirror / file).write_bytes(text)
    out = tmp_path / "raw"
    out.mkdir()
    (out / "earlier").touch()
    with pytest.raises(UserError, match=message) as error:
        download(out, data_params(task="mrpc"))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir() if path != mirror] == ["raw"], "no draft is left"
    assert (out / "earlier").exists(), "the earlier output is untouched"


def test_a_symlink_out_of_the_mirror_is_not_followed(mirror: Path, tmp_path: Path) -> None:
    (mirror / FILES[0]).rename(tmp_path / "elsewhere.txt")
    (mirror / FILES[0]).symlink_to(tmp_path / "elsewhere.txt")
    with pytest.raises(UserError, match=r"leads out of \S*mirror, to \S*elsewhere\.txt; put the file itself there"):
        download(tmp_path / "raw", data_params(task="mrpc"))


def test_a_relative_mirror_is_resolved_from_the_users_repository(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DVC runs queued experiments in a temporary directory, and sets DVC_ROOT to the repository."""
    (tmp_path / "repository").mkdir()
    monkeypatch.setenv("MRPC_MIRROR", "../mirror")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "repository"))
    assert len(load_glue("mrpc").splits["validation"]) == 408


def test_a_mirror_that_is_not_a_directory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRPC_MIRROR", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"MRPC_MIRROR is .*nowhere, .*directory"):
        load_glue("mrpc")


def test_without_a_network_download_fails_within_ten_seconds_and_names_every_alternative(tmp_path: Path) -> None:
    started = time.monotonic()
    nowhere = "http://127.0.0.1:9"  # the discard port: refuses at once
    done = run_download(tmp_path, HF_HUB_OFFLINE="0", HF_ENDPOINT=nowhere, HF_HOME=str(tmp_path), https_proxy=nowhere)
    assert time.monotonic() - started < 10
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    for words in ("MRPC_MIRROR is not set", "the Hub (nyu-mll/glue)", "dl.fbaipublicfiles.com", "make demo", "refused"):
        assert words in done.stderr
    assert not (tmp_path / "data" / "raw").exists()


def test_a_name_server_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(60))
    started = time.monotonic()
    with pytest.raises(Unavailable, match="timed out: no answer in 4 seconds"):
        from_web("https://example.org/file", tmp_path / "file", "0" * 64, 1)
    assert time.monotonic() - started < 5


WEB = b"a file of the original addresses"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"status": 404}, "answered 404"),
        (
            {"redirect": True},
            "answered 302 The HTTP server returned a redirect error that would lead to an infinite loop",
        ),
        ({"stall": 2}, "timed out"),
        ({"silence": True}, "timed out"),
        ({"corrupt": True}, "is not the published file"),
        ({"files": {}}, "answered 404"),
    ],
    ids=str,
)
def test_a_failing_original_url_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(fetch, "_ANSWER_SECONDS", 1)
    with serve() as hub:
        hub.files = {"repo/revision/file": WEB}
        vars(hub).update(fault)
        with pytest.raises(Unavailable, match=message) as error:
            from_web(f"{hub.url}/repo/resolve/revision/file", tmp_path / "file", sha256(WEB).hexdigest(), len(WEB))
    assert "\n" not in str(error.value)


def test_bytes_beyond_the_content_length_are_ignored(tmp_path: Path) -> None:
    with serve() as hub:
        hub.files = {"repo/revision/file": WEB}
        hub.more = b"more" * 1000
        from_web(f"{hub.url}/repo/resolve/revision/file", tmp_path / "file", sha256(WEB).hexdigest(), len(WEB))
    assert (tmp_path / "file").read_bytes() == WEB


def hub_files(mrpc_directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """MRPC as the Hub has it: parquet files of the same rows."""
    monkeypatch.setenv("MRPC_MIRROR", str(mrpc_directory))
    files = {}
    for split, table in load_glue("mrpc").splits.items():
        buffer = io.BytesIO()
        table.to_parquet(buffer)
        files[f"datasets/{HUB_REPO}/{HUB_REVISION}/mrpc/{split}-00000-of-00001.parquet"] = buffer.getvalue()
    return files


def test_the_hub_gives_the_same_bytes_as_the_mirror(
    mrpc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as hub:
        hub.files = hub_files(mrpc, monkeypatch)
        done = run_download(tmp_path, **hub.env(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    download(tmp_path / "raw", data_params(task="mrpc"))
    for split in ROWS_SHA256:
        ours = (tmp_path / "data" / "raw" / f"{split}.parquet").read_bytes()
        assert ours == (tmp_path / "raw" / f"{split}.parquet").read_bytes()


def other_corpus(hub: Hub) -> None:
    for name in hub.files:
        buffer = io.BytesIO()
        pq.write_table(pa.table({"sentence1": ["a"], "sentence2": ["b"], "label": [1], "idx": [0]}), buffer)
        hub.files[name] = buffer.getvalue()


def error_page(hub: Hub) -> None:
    hub.files = dict.fromkeys(hub.files, b"<html>please log in</html>")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda hub: hub.files.clear(), "the Hub answered 404 (not found)"),
        (lambda hub: setattr(hub, "status", 401), "the Hub answered 401 (no such repository, or not allowed"),
        (lambda hub: setattr(hub, "status", 429), "the Hub answered 429 (too many requests)"),
        (lambda hub: setattr(hub, "status", 503), "the Hub answered 503"),
        (lambda hub: setattr(hub, "stall", 8), "timed out"),
        (lambda hub: setattr(hub, "corrupt", True), "is not what the Hub published"),
        (other_corpus, "train has 1 rows; it must have 3668"),
        (error_page, "is not a parquet file of GLUE"),
        (lambda hub: setattr(hub, "redirect", True), "redirect"),
    ],
    ids=["404", "401", "429", "503", "stall", "corrupt", "other rows", "error page", "redirection"],
)
def test_a_failing_hub_is_reported_in_one_line(
    mrpc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: object, message: str
) -> None:
    with serve() as hub:
        hub.files = hub_files(mrpc, monkeypatch)
        fault(hub)  # type: ignore[operator]
        started = time.monotonic()
        done = run_download(tmp_path, **hub.env(tmp_path / "home"), https_proxy="http://127.0.0.1:9")
    assert time.monotonic() - started < 10
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "data" / "raw").exists()


@pytest.mark.slow
def test_a_stalled_hub_is_retried_and_given_up(mrpc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface_hub tries five times, with a timeout of HF_HUB_DOWNLOAD_TIMEOUT: one second here, ten by default."""
    with serve() as hub:
        hub.files = hub_files(mrpc, monkeypatch)
        hub.silence = True
        done = run_download(tmp_path, **hub.env(tmp_path / "home"), https_proxy="http://127.0.0.1:9")
    assert done.returncode == 1
    assert "the Hub (nyu-mll/glue)" in done.stderr and "timed out" in done.stderr
    assert "Traceback" not in done.stderr
