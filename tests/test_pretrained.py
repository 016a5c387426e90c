"""The pretrained stage accepts only pinned models and safe files, and gives the same bytes from every source."""

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
[PINNED_MINILM] = [name for name in CATALOG if name.startswith(MINILM)]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHARD = "model-00001-of-00002.safetensors"


def fetch(out: Path, checkpoint: object) -> Path:
    pretrained(out, ModelParams(checkpoint=str(checkpoint)))
    return out


@pytest.mark.parametrize("name", [MINILM, PINNED_MINILM])
def test_minilm_comes_from_its_wheel(name: str, tmp_path: Path) -> None:
    model = fetch(tmp_path / "out", name)
    source = json.loads((model / SOURCE).read_text())
    files = CATALOG[PINNED_MINILM]
    revision = PINNED_MINILM.partition("@")[2]
    assert source == {"checkpoint": MINILM, "revision": revision, "license": "apache-2.0", "files": files}
    assert {path.name: file_sha256(path) for path in model.iterdir() if path.name != SOURCE} == files


def test_the_mirror_has_priority_and_must_match_the_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = contents(fetch(tmp_path / "mirror" / MINILM, MINILM))
    monkeypatch.setenv("CHECKPOINT_MIRROR", str(tmp_path / "mirror"))
    (tmp_path / "mirror" / MINILM / "pytorch_model.bin").write_bytes(b"not needed")
    assert contents(fetch(tmp_path / "out", MINILM)) == published

    config = tmp_path / "mirror" / MINILM / "config.json"
    config.write_text(config.read_text().replace("0.1", "0.2"))
    with pytest.raises(UserError, match=r"config\.json .*sha256"):
        fetch(tmp_path / "out", MINILM)
    config.unlink()
    with pytest.raises(UserError, match=r"config\.json is missing"):
        fetch(tmp_path / "out", MINILM)
    assert contents(tmp_path / "out") == published, "the earlier output must not change"


@pytest.mark.parametrize("checkpoint", ["", "FacebookAI/roberta-base", "FacebookAI/roberta-base@main", "~/none"])
def test_a_checkpoint_that_is_neither_pinned_nor_a_directory_is_an_error(checkpoint: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf'model\.checkpoint is "{checkpoint}".*pipeline\.pin'):
        fetch(tmp_path / "out", checkpoint)


def test_a_local_directory_is_relative_to_the_users_repository(
    tiny: TinyMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queued experiment runs in another directory, and DVC_ROOT is the repository."""
    monkeypatch.setenv("DVC_ROOT", str(tiny("distilbert").parent))
    model = contents(fetch(tmp_path / "out", "distilbert"))
    assert model.keys() == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", SOURCE}
    assert str(tiny("distilbert").parent).encode() not in model[SOURCE], "the path has no meaning on another machine"


def test_a_model_in_the_directory_that_dvc_watches_is_relative_to_the_experiment(
    tiny: TinyMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "repository"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny(), "models/base/mine")
    assert (fetch(tmp_path / "out", "models/base/mine") / "model.safetensors").exists()


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


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_model_without_a_required_file_is_rejected(missing: str, tiny: TinyMaker, tmp_path: Path) -> None:
    model = shutil.copytree(tiny(), tmp_path / "model")
    (model / missing).rename(model / "pytorch_model.bin")
    with pytest.raises(UserError, match=rf"model has no {missing}"):
        fetch(tmp_path / "out", model)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"a": SHARD}}, None),
        ({"weight_map": {"a": "../other/model.safetensors"}}, r"names \.\./other/model\.safetensors"),
        ({"weight_map": [SHARD]}, "no valid weight_map"),
    ],
)
def test_an_index_may_only_name_weights_in_the_same_directory(
    index: object, message: str | None, tiny: TinyMaker, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny(), tmp_path / "model")
    shutil.copytree(tiny(), tmp_path / "other")
    (model / "model.safetensors").rename(model / SHARD)
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    if message is None:
        assert (fetch(tmp_path / "out", model) / SHARD).exists()
    else:
        with pytest.raises(UserError, match=message):
            fetch(tmp_path / "out", model)


def test_a_pinned_model_is_downloaded_once_and_without_unneeded_files(
    tiny: TinyMaker, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("someone/tiny", COMMIT, tiny("roberta"))
    hub.files[f"someone/tiny/{COMMIT}/pytorch_model.bin"] = b"pickle"
    hub.files[f"someone/tiny/{COMMIT}/modeling_tiny.py"] = b"import os"
    downloaded = contents(fetch(tmp_path / "out", f"someone/tiny@{COMMIT}"))
    assert not any(".bin" in request or ".py" in request for request in hub.requests)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert contents(fetch(tmp_path / "offline", f"someone/tiny@{COMMIT}")) == downloaded

    source, published = json.loads(downloaded.pop(SOURCE)), contents(tiny("roberta"))
    assert (source["checkpoint"], source["revision"]) == ("someone/tiny", COMMIT)
    del published[SOURCE]
    assert downloaded == published


def test_a_pickle_on_the_hub_is_rejected(tmp_path: Path, hub: Hub) -> None:
    for name in ("config.json", "tokenizer.json", "pytorch_model.bin"):
        hub.files[f"someone/old/{COMMIT}/{name}"] = b"{}"
    with pytest.raises(UserError, match=r"someone/old@\w+ has no model\.safetensors"):
        fetch(tmp_path / "out", f"someone/old@{COMMIT}")


def test_a_failing_hub_is_reported_in_one_line_with_the_remedy(tmp_path: Path, hub: Hub) -> None:
    with pytest.raises(UserError, match=r"^someone/none.* 401 .*docs/data_and_models\.md#without-the-hub\.$"):
        fetch(tmp_path / "out", f"someone/none@{COMMIT}")
    assert not (tmp_path / "out").exists()


def test_a_model_of_the_catalog_must_match_its_checksums_on_the_hub(
    tiny: TinyMaker, tmp_path: Path, hub: Hub
) -> None:
    [pinned] = CATALOG.keys() - {PINNED_MINILM}
    hub.add(*pinned.split("@"), tiny())
    with pytest.raises(UserError, match=r"config\.json .*sha256"):
        fetch(tmp_path / "out", pinned.partition("@")[0])
