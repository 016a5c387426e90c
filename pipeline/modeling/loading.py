"""Load models and tokenizers: safetensors only, no remote code, errors in one line."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pipeline.core.messages import UserError, log
from pipeline.core.paths import SETTINGS
from pipeline.modeling.first_token import first_token_only
from pipeline.modeling.heads import adapt_head, head_modules, inherited_head
from pipeline.modeling.regression_head import replace_head
from pipeline.modeling.settings import InferenceSettings, read_settings

_TRAINABLE_DTYPES = {"F64", "F32", "F16", "BF16"}  # the names that safetensors uses
_LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
_OPTIONS: dict[str, Any] = {
    "dtype": "float32",  # of the weights; autocast lowers the precision where it is safe
    "ignore_mismatched_sizes": True,  # `_check_weights` reports them
    "output_loading_info": True,
}


def load_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer of a model directory. Without a padding token, it pads with the end-of-text token.

    Raises:
        UserError: It does not load, does not fit the model, or has neither of these tokens.
    """
    with reading_model(directory):
        if not (directory / "tokenizer.json").is_file():
            raise ValueError(
                "it has no tokenizer.json, and a tokenizer made from other files may split texts otherwise"
            )
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(directory, **_LOCAL)
        vocab_size = getattr(AutoConfig.from_pretrained(directory, **_LOCAL), "vocab_size", len(tokenizer))
        tokens = max(tokenizer.get_vocab().values(), default=-1) + 1
        if tokens > vocab_size:
            raise ValueError(f"its tokenizer has {tokens} tokens, its model {vocab_size}")
        if not {"input_ids", "attention_mask"} <= set(tokenizer.model_input_names):
            raise ValueError(f"its tokenizer gives {tokenizer.model_input_names}, without input_ids or attention_mask")
        # A tokenizer that lacks the token for unknown words fails at the first one. The backend keeps its settings.
        tokenizer.backend_tokenizer.encode("\u2603")
    if tokenizer.pad_token is None:
        _pad_with_end_of_text(tokenizer, directory)
    for entry in ("is_local", "local_files_only"):  # the saved bytes would depend on how the directory was found
        tokenizer.init_kwargs.pop(entry, None)
    return tokenizer


def _pad_with_end_of_text(tokenizer: PreTrainedTokenizerBase, directory: Path) -> None:
    if tokenizer.eos_token is None:
        raise UserError(
            f"{directory}: its tokenizer has neither a padding token nor an end-of-text token, so texts cannot be "
            "batched; use another model"
        )
    log.info(
        "%s: its tokenizer has no padding token, so texts are padded with the end-of-text token %s",
        directory, tokenizer.eos_token,
    )  # fmt: skip
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"  # on the left, padding would move the positions of the text in GPT-2


def load_classifier(directory: Path, device: str, trained: bool = False, **config: Any) -> PreTrainedModel:
    """Load a sequence classifier in fp32 into main memory.

    Weights that a base model lacks are newly initialized, and logged. If it was fine-tuned before, its head is kept if
    it has the same classes, with its rows in the order of `id2label` in `config`. A head for other classes is newly
    initialized.

    Args:
        device: The type of device that will compute.
        trained: It is a fine-tuned model, and no weight may be missing.
        config: Entries of config.json to change.

    Raises:
        UserError: The model does not load, weights of a fine-tuned model are missing, or most weights of a base model
            are: then they have the names of another library.
    """
    labels = [str(name) for name in config.get("id2label", {}).values()]
    with reading_model(directory):
        settings = read_settings(directory) if trained else None
        architecture, tensors = _read_architecture(directory)
        head = None if trained else inherited_head(architecture, tensors)
        rows = head.rows_for(labels) if head else None
        if head and rows is None:
            model, loading = _load_without_head(directory, architecture, config)
        else:
            model, loading = AutoModelForSequenceClassification.from_pretrained(
                directory, use_safetensors=True, **_LOCAL, **_OPTIONS, **config
            )
        _check_weights(model, loading)
        first_token_only(model)
    missing, unexpected = sorted(loading["missing_keys"]), sorted(loading["unexpected_keys"])
    if settings:
        _require_complete(directory, settings, model.config, missing, unexpected)
    else:
        _require_known_names(directory, model, missing)
    if head:
        adapt_head(model, head, rows, labels, directory)
    elif missing:
        log.info("newly initialized, because %s lacks them: %s", directory, ", ".join(missing))
    if model.config.problem_type == "regression":
        replace_head(model, missing)
    if device == "cpu":
        # With dropout, PyTorch's scaled dot product attention computes in fp32 what autocast has made bf16.
        model.set_attn_implementation("eager")
    return model  # type: ignore[no-any-return]


def _read_architecture(directory: Path) -> tuple[PreTrainedModel, dict[str, list[int]]]:
    """Build the model that config.json describes, without weights.

    Returns:
        The model, and the shape of each stored tensor by name.

    Raises:
        ValueError: The model is far larger than the stored tensors: with a wrong config.json, transformers would
            allocate memory, or build layers, without end.
    """
    shapes: dict[str, list[int]] = {}
    for file in directory.glob("model*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                tensor = weights.get_slice(name)
                shapes[name] = tensor.get_shape()
                if name.endswith(".weight") and tensor.get_dtype() not in _TRAINABLE_DTYPES:
                    raise ValueError(
                        f"{name} in {file.name} has numbers of type {tensor.get_dtype()}, which cannot be trained"
                    )
    config = AutoConfig.from_pretrained(directory, **_LOCAL)
    for entry in ("num_hidden_layers", "num_attention_heads"):
        if getattr(config, entry, 1) < 1:
            raise ValueError(f"config.json has {getattr(config, entry)} as {entry}")
    layers = getattr(config, "num_hidden_layers", 1)
    if layers > len(shapes):
        raise ValueError(f"config.json asks for {layers} layers; the weights have {len(shapes)} tensors in all")
    with torch.device("meta"):  # shapes only
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    stored = sum(map(math.prod, shapes.values()))
    if model.num_parameters() > 2 * stored + 1_000_000:  # a new head is small
        raise ValueError(f"config.json describes {model.num_parameters()} parameters; the weights have {stored}")
    return model, shapes


def _load_without_head(directory: Path, architecture: PreTrainedModel, config: dict[str, Any]) -> Any:
    """Load a checkpoint as if it did not have a head, and return the model and what was missing."""
    head = head_modules(architecture)
    weights = {
        name: tensor
        for file in directory.glob("model*.safetensors")
        for name, tensor in load_file(file).items()
        if name.split(".")[0] not in head
    }
    changed = AutoConfig.from_pretrained(directory, **_LOCAL, **config)
    return type(architecture).from_pretrained(None, config=changed, state_dict=weights, **_OPTIONS)


def _check_weights(model: PreTrainedModel, loading: dict[str, Any]) -> None:
    """Take the weights into memory. Raises ValueError if they do not fit config.json or are not finite."""
    for name, stored, expected in loading["mismatched_keys"]:
        raise ValueError(f"config.json wants {name} of shape {list(expected)}; the weights have {list(stored)}")
    prefix = f"{model.base_model_prefix}."
    names = {name.removeprefix(prefix) for name, _ in model.named_parameters()}
    for name in sorted(loading["unexpected_keys"]):
        if re.sub(r"\.\d+\.", ".0.", name.removeprefix(prefix)) in names:
            raise ValueError(f"the weights have {name}, a layer more than config.json asks for")
    for name, parameter in model.named_parameters():
        # safetensors only maps the file into memory; truncated while the stage runs, it would crash the process.
        parameter.data = parameter.data.clone()
        if not parameter.isfinite().all():
            raise ValueError(f"its weights hold NaN or infinite numbers, in {name}")


def _require_complete(
    directory: Path, settings: InferenceSettings, config: Any, missing: list[str], unexpected: list[str]
) -> None:
    """Raise UserError if the files of a fine-tuned model do not belong to one complete model."""
    if missing:
        raise UserError(
            f"{directory}: {_lacks(missing)}, so it is not what the stage train has written; "
            'run "dvc repro", or name another'
        )
    labels = [str(config.id2label.get(number)) for number in range(config.num_labels)]
    if not settings.labels and len(labels) == 1:  # transformers gives the one output of a regression a name
        labels = []
    remedy = 'they belong to different models: copy the directory again, or run "dvc repro --force train"'
    for entry, in_settings, in_config in (
        ("labels", settings.labels, labels),
        ("problem type", settings.problem_type, config.problem_type),
    ):
        if in_settings != in_config:
            raise UserError(
                f"{directory}: {SETTINGS} has the {entry} {in_settings}, and config.json {in_config}; {remedy}"
            )
    if unexpected:
        raise UserError(f"{directory}: its weights have {unexpected[0]}, which config.json does not describe; {remedy}")


def _require_known_names(directory: Path, model: PreTrainedModel, missing: list[str]) -> None:
    """Raise UserError if a base model lacks most of its weights."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    if 2 * sum(sizes.get(name, 0) for name in missing) > sum(sizes.values()):
        raise UserError(
            f"{directory}: {_lacks(missing)}, most of the model; take a checkpoint with the names of transformers"
        )


def _lacks(missing: list[str]) -> str:
    return f"its weights lack {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")


@contextmanager
def reading_model(directory: Path) -> Iterator[None]:
    """Raise UserError, in one line, for whatever fails in the block, and if the model is replaced meanwhile."""
    before, failure = _file_versions(directory), None
    try:
        yield
    except Exception as error:  # tokenizers raises Exception itself, and a damaged file almost anything in transformers
        failure = error
    if _file_versions(directory) != before:
        raise UserError(f"{directory}: the model was replaced while it was read; run again") from failure
    if isinstance(failure, UserError):
        raise failure
    if failure:
        reason = " ".join(str(failure).split()) or type(failure).__name__
        raise UserError(f"{directory} does not load: {reason}") from failure


def _file_versions(directory: Path) -> dict[str, tuple[int, int, int]] | None:
    """Return inode, time and size of a model's files by name, or None if the directory is missing."""
    try:
        files = [path for path in directory.iterdir() if path.suffix in (".json", ".safetensors")]
        return {path.name: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for path in files for stat in [path.stat()]}
    except OSError:
        return None
