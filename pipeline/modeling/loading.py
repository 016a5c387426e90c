"""Load models and tokenizers, without pickled weights or remote code, and report errors in one line."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

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
from pipeline.modeling.regression_head import final_layer, replace_head

_LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}


def load_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer of a model directory.

    A tokenizer without a padding token is set to pad with its end-of-text token. If the model has only one token type,
    the tokenizer does not return token types.

    Raises:
        UserError: The tokenizer cannot be loaded, does not fit the model, or has neither of these tokens.
    """
    with _reading_model(directory):
        if not (directory / "tokenizer.json").is_file():
            raise ValueError(
                "it has no tokenizer.json, and a tokenizer built from other files may split texts differently"
            )
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(directory, **_LOCAL)
        config = AutoConfig.from_pretrained(directory, **_LOCAL)
        vocab_size = getattr(config, "vocab_size", len(tokenizer))
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
    if "token_type_ids" in tokenizer.model_input_names and getattr(config, "type_vocab_size", None) == 1:
        # RoBERTa models with BERT's tokenizer, such as klue/roberta-base, have no type for the second text of a pair.
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names  # `save_pretrained` writes these.
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

    Weights that are missing are newly initialized and logged. If the base model was fine-tuned before, its head is kept
    if it is for the same labels in the same order, or if both tasks are regressions.

    Args:
        device: The type of the device that the model will run on.
        config: Entries of config.json to override.

    Raises:
        UserError: The model cannot be loaded, or most weights are missing, because they have the names of another
            library.
    """
    with _reading_model(directory):
        model, missing, unused, mismatched = _load(directory, **config)
        _require_all_layers(model, unused)
        published_config = AutoConfig.from_pretrained(directory, **_LOCAL)
        last_layer = final_layer(model)
        has_head = last_layer is not None and f"{last_layer}.weight" not in missing
        if has_head and not _have_same_outputs(published_config, model.config):
            log.info("%s has a head for another task, which is not used", directory)
            model = _with_new_head(model)
            head = {name for name, _ in model.named_parameters() if not name.startswith(f"{model.base_model_prefix}.")}
            missing, mismatched = missing | head, mismatched - head
        _require_weights(model, mismatched)
        _require_known_names(directory, model, missing)
        if missing:
            log.info("newly initialized: %s", ", ".join(sorted(missing)))
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
        model, missing, unused, mismatched = _load(directory)
        _require_weights(model, mismatched)
        if different := missing | unused:
            raise UserError(
                f"{directory}: its weights do not match its config.json, for example {min(different)}. Copy the "
                'directory again, or run "dvc repro --force train".'
            )
        _require_known_outputs(model.config)
        _prepare(model, device, set())
    return model


def _load(directory: Path, **config: Any) -> tuple[PreTrainedModel, set[str], set[str], set[str]]:
    """Load a sequence classifier.

    Returns:
        The model, and three sets of names of weights: those that the directory does not have, those that the model does
        not have, and those whose shapes differ. The first and the third set are newly initialized.
    """
    model, loading = AutoModelForSequenceClassification.from_pretrained(
        directory,
        # The key `transformers_weights` of config.json could name a file that is not a safetensors file.
        config=AutoConfig.from_pretrained(directory, **_LOCAL, transformers_weights=None, **config),
        use_safetensors=True,
        dtype="float32",  # Only the weights are in fp32. Autocast lowers the precision where it is safe.
        disable_mmap=True,  # The process would crash if a mapped file were truncated later.
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        **_LOCAL,
    )
    mismatched = {name for name, *_ in loading["mismatched_keys"]}
    return model, set(loading["missing_keys"]), set(loading["unexpected_keys"]), mismatched


def _have_same_outputs(published: Any, config: Any) -> bool:
    """Return whether the outputs of two sequence classifiers mean the same, by their config.json."""
    if config.problem_type == "regression":
        return bool(published.problem_type == "regression" and published.num_labels == 1)
    # The default names LABEL_0, LABEL_1, ... do not say what the outputs mean.
    default = {number: f"LABEL_{number}" for number in range(published.num_labels)}
    return bool(published.id2label == config.id2label != default)


def _with_new_head(model: Any) -> PreTrainedModel:
    """Return a model with the same weights except for its head, which is newly initialized."""
    new_model: Any = AutoModelForSequenceClassification.from_config(model.config)  # type: ignore[no-untyped-call]
    new_model.base_model.load_state_dict(model.base_model.state_dict())
    return new_model  # type: ignore[no-any-return]


def _require_all_layers(model: PreTrainedModel, unused: Collection[str]) -> None:
    """Raise ValueError if the weights have more layers than config.json describes."""
    prefix = f"{model.base_model_prefix}."
    names = {name.removeprefix(prefix) for name, _ in model.named_parameters()}
    for name in unused:
        if re.sub(r"\.\d+\.", ".0.", name.removeprefix(prefix)) in names:
            raise ValueError(f"the weights have more layers than config.json describes, for example {name}")


def _require_weights(model: PreTrainedModel, mismatched: Collection[str]) -> None:
    """Raise ValueError if a weight has another shape than config.json describes, or is not finite."""
    for name, weight in model.named_parameters():
        if name in mismatched:
            raise ValueError(f"{name} does not have the shape {list(weight.shape)} that config.json describes")
        if not weight.isfinite().all():
            raise ValueError(f"its weights contain NaN or infinite numbers, for example in {name}")


def _require_known_outputs(config: Any) -> None:
    """Raise ValueError if the config.json of a fine-tuned model does not say what its outputs mean."""
    labels = config.id2label
    if sorted(labels) != list(range(len(labels))):
        raise ValueError(f"id2label in config.json must have the keys 0 to {len(labels) - 1}, got {labels}")
    problem_type = config.problem_type
    if problem_type not in get_args(ProblemType) or (problem_type == "regression") != (len(labels) == 1):
        raise ValueError(f"problem_type in config.json does not fit a model with {len(labels)} outputs: {problem_type}")


def _prepare(model: Any, device: str, newly_initialized: Collection[str]) -> None:
    """Set how a model computes. Its logits stay the same up to rounding."""
    first_token_only(model)
    if model.config.problem_type == "regression":
        replace_head(model, newly_initialized)
    model.config.use_cache = False  # Only text generation needs it. The Trainer would change it, the loop would not.
    if device == "cpu":
        # With dropout, PyTorch's scaled dot product attention computes in fp32, even if autocast chose bf16.
        model.set_attn_implementation("eager")


def _require_known_names(directory: Path, model: PreTrainedModel, missing: Collection[str]) -> None:
    """Raise UserError if most of the weights of a base model are missing."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    if 2 * sum(sizes.get(name, 0) for name in missing) > sum(sizes.values()):
        raise UserError(
            f"{directory}: {len(missing)} weights are missing, for example {min(missing)}, which is most of the model. "
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
