"""Load models, without pickled weights or remote code. What does not fit is a UserError."""

import re
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedModel

from pipeline.core.messages import log
from pipeline.modeling.first_token import first_token_only
from pipeline.modeling.regression_head import final_layer, replace_head
from pipeline.modeling.tokenization import LOCAL_FILES, reading_model


def load_base_model(directory: Path, device: str, **config: Any) -> PreTrainedModel:
    """Load a base model as a sequence classifier in fp32 into main memory.

    Weights that are missing are newly initialized and logged. If the base model was fine-tuned before, its head is kept
    if it is for the same labels in the same order, or if both tasks are regressions. `config` overrides config.json.
    """
    with reading_model(directory):
        model, missing, unused, mismatched = _load(directory, AutoModelForSequenceClassification, **config)
        prefix = f"{model.base_model_prefix}."
        known_names = {name.removeprefix(prefix) for name, _ in model.named_parameters()}
        for name in unused:
            if re.sub(r"\.\d+\.", ".0.", name.removeprefix(prefix)) in known_names:  # a name of the first layer
                raise ValueError(f"the weights have more layers than config.json describes, for example {name}")
        published_config = AutoConfig.from_pretrained(directory, **LOCAL_FILES)
        last_layer = final_layer(model)
        has_head = last_layer is not None and f"{last_layer}.weight" not in missing
        if has_head and not _have_same_outputs(published_config, model.config):
            log.info("%s has a head for another task, which is not used", directory)
            model, head = _with_new_head(model)
            missing, mismatched = missing | head, mismatched - head
        _require_weights(model, missing, mismatched)
        if missing:
            log.info("newly initialized: %s", ", ".join(sorted(missing)))
    return _prepared(model, device, missing)


def load_fine_tuned_model(directory: Path, device: str) -> PreTrainedModel:
    """Load a model that the stage train wrote, in fp32, into main memory."""
    with reading_model(directory):
        model, missing, unused, mismatched = _load(directory, AutoModelForSequenceClassification)
        if different := missing | unused | mismatched:
            raise ValueError(f"its weights do not match its config.json, for example {min(different)}")
    return _prepared(model, device, set())


def load_encoder(directory: Path) -> Any:
    """Load a base model without a head in fp32 into main memory: only its encoder, if it also has a decoder."""
    with reading_model(directory):
        model, missing, _, mismatched = _load(directory, AutoModel, use_cache=False)
        _require_weights(model, missing, mismatched)
    return model.get_encoder() if model.config.is_encoder_decoder else model


def _load(directory: Path, model_class: Any, **config: Any) -> tuple[Any, set[str], set[str], set[str]]:
    """Return a model, and the names of weights that are missing, unused, or of another shape."""
    model, loading = model_class.from_pretrained(
        directory,
        # The key `transformers_weights` of config.json could name a file that is not a safetensors file.
        config=AutoConfig.from_pretrained(directory, **LOCAL_FILES, transformers_weights=None, **config),
        use_safetensors=True,
        dtype="float32",  # Only the weights are in fp32. Autocast lowers the precision where it is safe.
        disable_mmap=True,  # The process would crash if a mapped file were truncated later.
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        **LOCAL_FILES,
    )
    mismatched = {name for name, *_ in loading["mismatched_keys"]}
    return model, set(loading["missing_keys"]), set(loading["unexpected_keys"]), mismatched


def _require_weights(model: PreTrainedModel, missing: set[str], mismatched: set[str]) -> None:
    if mismatched or 2 * len(missing) > len([*model.parameters()]):
        raise ValueError(f"its weights have unexpected names or shapes, for example {min(mismatched or missing)}")


def _with_new_head(model: Any) -> tuple[Any, set[str]]:
    """Return a model with the same body and a newly initialized head, and the names of the head's weights."""
    new: Any = AutoModelForSequenceClassification.from_config(model.config)  # type: ignore[no-untyped-call]
    new.base_model.load_state_dict(model.base_model.state_dict())
    return new, {name for name, _ in new.named_parameters() if not name.startswith(f"{new.base_model_prefix}.")}


def _have_same_outputs(published: Any, config: Any) -> bool:
    """Return whether the outputs of two sequence classifiers mean the same, by their config.json."""
    if config.problem_type == "regression":
        return bool(published.problem_type == "regression" and published.num_labels == 1)
    # The default names LABEL_0, LABEL_1, ... do not say what the outputs mean.
    default = {number: f"LABEL_{number}" for number in range(published.num_labels)}
    return bool(published.id2label == config.id2label != default)


def _prepared(model: Any, device: str, newly_initialized: set[str]) -> PreTrainedModel:
    """Set how a model computes. Its logits stay the same up to rounding."""
    first_token_only(model)
    if model.config.problem_type == "regression":
        replace_head(model, newly_initialized)
    model.config.use_cache = False  # Only text generation needs it. The Trainer would change it, the loop would not.
    if device == "cpu":
        # With dropout, PyTorch's scaled dot product attention computes in fp32, even if autocast chose bf16.
        model.set_attn_implementation("eager")
    return model  # type: ignore[no-any-return]
