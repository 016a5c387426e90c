"""The download stage: MRPC from every source matches its checksums, and every fault is reported in one line."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from conftest import contents, data_params
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.download import download
from pipeline.sources.corpus import rows_sha256
from pipeline.sources.demo import load_demo
from pipeline.sources.glue import HUB_REPO, HUB_REVISION
from pipeline.sources.glue_rows import MRPC_FILES, MRPC_SHA256, load_glue

TEST = MRPC_FILES[1]


@pytest.fixture
def mirror(mrpc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the mirror, so that a test can damage it."""
    copy = tmp_path / "mirror"
    copy.mkdir()
    for name in MRPC_FILES:
        shutil.copy(mrpc / name, copy / name)
    monkeypatch.setenv("MRPC_MIRROR", str(copy))
    return copy


def test_mrpc_matches_its_checksums_and_the_mirror_and_the_hub_give_the_same_bytes(
    mirror: Path, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    download(tmp_path / "raw", data_params(task="mrpc"))
    for (split, expected), counts in zip(MRPC_SHA256.items(), ((3668, 2474), (408, 279), (1725, 1147)), strict=True):
        table = pq.read_table(tmp_path / "raw" / f"{split}.parquet", columns=["sentence1", "sentence2", "label", "idx"])
        assert (len(table), sum(table["label"].to_pylist())) == counts
        assert rows_sha256(table.to_pandas()) == expected
        features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        assert features["label"]["names"] == ["not_equivalent", "equivalent"]
    validation = pq.read_table(tmp_path / "raw" / "validation.parquet")
    assert validation["idx"][0].as_py() == 9, "as on the Hub, the indices of train and validation are interleaved"

    hub.files = hub_files()
    monkeypatch.delenv("MRPC_MIRROR")
    download(tmp_path / "from_hub", data_params(task="mrpc"))
    assert contents(tmp_path / "from_hub") == contents(tmp_path / "raw")


def test_the_demo_corpus_is_the_same_everywhere() -> None:
    checksum = "3103c1a1962545483bbb79f1228d32d70fb63eb60de885ebd06166b0fb9b14cc"
    assert rows_sha256(pd.concat(load_demo().splits.values())) == checksum


def hub_files() -> dict[str, bytes]:
    """Return MRPC as on the Hub, which has the same rows in Parquet files."""
    files = {}
    for split, table in load_glue(data_params(task="mrpc")).splits.items():
        files[f"datasets/{HUB_REPO}/{HUB_REVISION}/mrpc/{split}-00000-of-00001.parquet"] = table.to_parquet()
    return files


def test_a_damaged_mirror_is_reported_in_one_line(mirror: Path, tmp_path: Path) -> None:
    """The other faults of a mirror are tested in `test_glue.py`."""
    (mirror / TEST).write_bytes((mirror / TEST).read_bytes().replace(b"the", b"teh", 1))
    out = tmp_path / "raw"
    out.mkdir()
    (out / "earlier").touch()
    with pytest.raises(UserError, match="rows of test are not the published ones: their sha256"):
        download(out, data_params(task="mrpc"))
    assert [path.name for path in tmp_path.iterdir() if path != mirror] == ["raw"], "no draft may be left"
    assert (out / "earlier").exists(), "the earlier output must not change"


def test_a_relative_mirror_is_resolved_against_the_users_repository(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DVC runs queued experiments in a temporary directory, and sets DVC_ROOT to the repository."""
    (tmp_path / "repository").mkdir()
    monkeypatch.setenv("MRPC_MIRROR", "../mirror")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "repository"))
    assert len(load_glue(data_params(task="mrpc")).splits["validation"]) == 408
