"""Load models and tokenizers, without pickled weights or remote code, and report errors in one line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pipeline.core.messages import UserError, log
from pipeline.core.task import ProblemType
from pipeline.modeling.first_token import first_token_only
from pipeline.modeling.heads import with_matching_head
from pipeline.modeling.regression_head import replace_head

_LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}


def load_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer of a model directory.

    A tokenizer without a padding token is set to pad with its end-of-text token.

    Raises:
        UserError: The tokenizer cannot be loaded, does not fit the model, or has neither of these tokens.
    """
    with _reading_model(directory):
        if not (directory / "tokenizer.json").is_file():
            raise ValueError(
                "it has no tokenizer.json, and a tokenizer built from other files may split texts differently"
            )
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(directory, **_LOCAL)
        vocab_size = getattr(AutoConfig.from_pretrained(directory, **_LOCAL), "vocab_size", len(tokenizer))
        tokens = max(tokenizer.get_vocab().values(), default=-1) + 1
        if tokens > vocab_size:
            raise ValueError(f"its tokenizer has {tokens} tokens, but vocab_size in config.json is {vocab_size}")
        if not {"input_ids", "attention_mask"} <= set(tokenizer.model_input_names):
            raise ValueError(
                f"its tokenizer must return input_ids and attention_mask, got {tokenizer.model_input_names}"
            )
        # A tokenizer that has no token for unknown words fails at the first unknown word, so try one now. Calling the
        # backend directly does not change its settings for padding and truncation.
        tokenizer.backend_tokenizer.encode("\u2603")
    if tokenizer.pad_token is None:
        _pad_with_end_of_text(tokenizer, directory)
    # These entries only say how the tokenizer was loaded. They would change the bytes of tokenizer_config.json.
    for entry in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(entry, None)
    return tokenizer


def _pad_with_end_of_text(tokenizer: PreTrainedTokenizerBase, directory: Path) -> None:
    if tokenizer.eos_token is None:
        raise UserError(
            f"{directory}: its tokenizer has neither a padding token nor an end-of-text token, so texts cannot be "
            "batched. Use a different model."
        )
    log.info(
        "%s: its tokenizer has no padding token, so texts are padded with the end-of-text token %s",
        directory, tokenizer.eos_token,
    )  # fmt: skip
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"  # In GPT-2, padding on the left would shift the positions of the text.


def load_base_model(directory: Path, device: str, **config: Any) -> PreTrainedModel:
    """Load a base model as a sequence classifier in fp32 into main memory.

    Weights that are missing are newly initialized and logged. If the base model was fine-tuned before with the same
    labels, its head is kept, and the rows of the head are reordered to match `id2label` in `config`. A head for other
    labels is newly initialized.

    Args:
        device: The type of the device that the model will run on.
        config: Entries of config.json to override.

    Raises:
        UserError: The model cannot be loaded, or most weights are missing, because they have the names of another
            library.
    """
    labels = [str(name) for name in config.get("id2label", {}).values()]
    with _reading_model(directory):
        weights = _read_weights(directory)
        architecture = _build_architecture(directory, weights)
        weights = with_matching_head(weights, architecture, labels, directory)
        model, missing, unexpected = _build_model(type(architecture), directory, weights, config)
        _require_all_layers(model, unexpected)
        _require_known_names(directory, model, missing)
        if missing:
            log.info("newly initialized: %s", ", ".join(missing))
        _prepare(model, device, missing)
    return model


def load_fine_tuned_model(directory: Path, device: str) -> PreTrainedModel:
    """Load a model that the stage train wrote, in fp32, into main memory.

    Args:
        device: The type of the device that the model will run on.

    Raises:
        UserError: The model cannot be loaded, or its weights and its config.json do not match.
    """
    with _reading_model(directory):
        weights = _read_weights(directory)
        architecture = _build_architecture(directory, weights)
        model, missing, unexpected = _build_model(type(architecture), directory, weights, {})
        if different := missing + unexpected:
            raise UserError(
                f"{directory}: its weights do not match its config.json, for example {different[0]}. Copy the "
                'directory again, or run "dvc repro --force train".'
            )
        _require_known_outputs(model.config)
        _prepare(model, device, [])
    return model


def _read_weights(directory: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a model directory by name.

    Raises:
        ValueError: The directory has no weights, or some of them cannot be trained.
    """
    weights: dict[str, torch.Tensor] = {}
    for file in sorted(directory.glob("model*.safetensors")):
        # load_file only maps the file into memory, and the process would crash if the file were truncated later.
        weights |= {name: tensor.clone() for name, tensor in load_file(file).items()}
    if not weights:
        raise ValueError("it has no model.safetensors")
    for name, tensor in weights.items():
        if name.endswith(".weight") and not tensor.is_floating_point():
            raise ValueError(f"{name} has numbers of type {tensor.dtype}, which cannot be trained")
        if not tensor.isfinite().all():
            raise ValueError(f"its weights contain NaN or infinite numbers, for example in {name}")
    return weights


def _build_architecture(directory: Path, weights: dict[str, torch.Tensor]) -> Any:
    """Build the model that config.json describes, without weights.

    Raises:
        ValueError: The model is far larger than the stored weights. (With a wrong config.json, transformers would
            otherwise allocate memory or build layers without end.)
    """
    config = AutoConfig.from_pretrained(directory, **_LOCAL)
    layers = getattr(config, "num_hidden_layers", 1)
    if layers > len(weights):
        raise ValueError(f"config.json asks for {layers} layers, but the weights only have {len(weights)} tensors")
    with torch.device("meta"):  # shapes only
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    stored = sum(tensor.numel() for tensor in weights.values())
    if model.num_parameters() > 2 * stored + 1_000_000:  # This leaves room for a new head.
        raise ValueError(f"config.json describes {model.num_parameters()} parameters, but the weights have {stored}")
    return model


def _build_model(
    model_class: Any, directory: Path, weights: dict[str, torch.Tensor], config: dict[str, Any]
) -> tuple[PreTrainedModel, list[str], list[str]]:
    """Return the model with these weights, the names that are missing from them, and the names it does not have.

    Raises:
        ValueError: A weight has another shape than config.json describes.
    """
    model, loading = model_class.from_pretrained(
        None,
        config=AutoConfig.from_pretrained(directory, **_LOCAL, **config),
        state_dict=weights,
        dtype="float32",  # Only the weights are in fp32. Autocast lowers the precision where it is safe.
        ignore_mismatched_sizes=True,  # They are reported in one line below.
        output_loading_info=True,
    )
    for name, stored, expected in loading["mismatched_keys"]:
        raise ValueError(f"{name} must have shape {list(expected)} according to config.json, got {list(stored)}")
    return model, sorted(loading["missing_keys"]), sorted(loading["unexpected_keys"])


def _require_all_layers(model: PreTrainedModel, unexpected: list[str]) -> None:
    """Raise ValueError if the weights have more layers than config.json describes."""
    prefix = f"{model.base_model_prefix}."
    names = {name.removeprefix(prefix) for name, _ in model.named_parameters()}
    for name in unexpected:
        if re.sub(r"\.\d+\.", ".0.", name.removeprefix(prefix)) in names:
            raise ValueError(f"the weights have more layers than config.json describes, for example {name}")


def _require_known_outputs(config: Any) -> None:
    """Raise ValueError if the config.json of a fine-tuned model does not say what its outputs mean."""
    labels = config.id2label
    if sorted(labels) != list(range(len(labels))):
        raise ValueError(f"id2label in config.json must have the keys 0 to {len(labels) - 1}, got {labels}")
    problem_type = config.problem_type
    if problem_type not in get_args(ProblemType) or (problem_type == "regression") != (len(labels) == 1):
        raise ValueError(f"problem_type in config.json does not fit a model with {len(labels)} outputs: {problem_type}")


def _prepare(model: Any, device: str, newly_initialized: list[str]) -> None:
    """Set how a model computes. Its logits stay the same up to rounding."""
    first_token_only(model)
    if model.config.problem_type == "regression":
        replace_head(model, newly_initialized)
    model.config.use_cache = False  # Only text generation needs it. The Trainer would change it, the loop would not.
    if device == "cpu":
        # With dropout, PyTorch's scaled dot product attention computes in fp32, even if autocast chose bf16.
        model.set_attn_implementation("eager")


def _require_known_names(directory: Path, model: PreTrainedModel, missing: list[str]) -> None:
    """Raise UserError if most of the weights of a base model are missing."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    if 2 * sum(sizes.get(name, 0) for name in missing) > sum(sizes.values()):
        raise UserError(
            f"{directory}: {len(missing)} weights are missing, for example {missing[0]}, which is most of the model. "
            "Use a checkpoint whose weights have the names that transformers expects."
        )


@contextmanager
def _reading_model(directory: Path) -> Iterator[None]:
    """Raise UserError, in one line, if the block fails for any reason."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # tokenizers raises plain Exceptions, and a damaged file can cause almost any exception in transformers.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{directory} cannot be loaded: {reason}") from error
