"""Load models and tokenizers: safetensors only, no remote code, errors in one line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from pipeline.core.paths import SETTINGS
from pipeline.modeling.first_token import first_token_only
from pipeline.modeling.heads import adapt_head, head_modules, inherited_head
from pipeline.modeling.regression_head import replace_head
from pipeline.modeling.settings import InferenceSettings, read_settings

_LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}


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
        # A tokenizer without a token for unknown words fails at the first one. The backend keeps its settings.
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
            "batched. Use another model."
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
        weights = _read_weights(directory)
        architecture = _build_architecture(directory, weights)
        head = None if trained else inherited_head(architecture, weights)
        rows = head.rows_for(labels) if head else None
        if head and rows is None:  # Without its weights, the head is newly initialized.
            modules = head_modules(architecture)
            weights = {name: tensor for name, tensor in weights.items() if name.split(".")[0] not in modules}
        model, loading = type(architecture).from_pretrained(
            None,
            config=AutoConfig.from_pretrained(directory, **_LOCAL, **config),
            state_dict=weights,
            dtype="float32",  # of the weights; autocast lowers the precision where it is safe
            ignore_mismatched_sizes=True,  # `_require_fit` reports them
            output_loading_info=True,
        )
        _require_fit(model, loading)
        first_token_only(model)
    missing = sorted(loading["missing_keys"])
    if settings:
        _require_complete(directory, settings, model.config, missing, sorted(loading["unexpected_keys"]))
    else:
        _require_known_names(directory, model, missing)
    if head:
        adapt_head(model, head, rows, labels, directory)
    elif missing:
        log.info("newly initialized, because %s lacks them: %s", directory, ", ".join(missing))
    if model.config.problem_type == "regression":
        replace_head(model, missing)
    model.config.use_cache = False  # a classifier generates no text; the Trainer would change it, the loop would not
    if device == "cpu":
        # With dropout, PyTorch's scaled dot product attention computes in fp32 what autocast has made bf16.
        model.set_attn_implementation("eager")
    return model  # type: ignore[no-any-return]


def _read_weights(directory: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a model directory by name.

    Raises:
        ValueError: There are none, or some of them cannot be trained.
    """
    weights: dict[str, torch.Tensor] = {}
    for file in sorted(directory.glob("model*.safetensors")):
        # load_file only maps a file into memory. If it were truncated while the stage runs, the process would crash.
        weights |= {name: tensor.clone() for name, tensor in load_file(file).items()}
    if not weights:
        raise ValueError("it has no model.safetensors")
    for name, tensor in weights.items():
        if name.endswith(".weight") and not tensor.is_floating_point():
            raise ValueError(f"{name} has numbers of type {tensor.dtype}, which cannot be trained")
        if not tensor.isfinite().all():
            raise ValueError(f"its weights hold NaN or infinite numbers, in {name}")
    return weights


def _build_architecture(directory: Path, weights: dict[str, torch.Tensor]) -> Any:
    """Build the model that config.json describes, without weights.

    Raises:
        ValueError: The model is far larger than the weights: with a wrong config.json, transformers would allocate
            memory, or build layers, without end.
    """
    config = AutoConfig.from_pretrained(directory, **_LOCAL)
    layers = getattr(config, "num_hidden_layers", 1)
    if layers > len(weights):
        raise ValueError(f"config.json asks for {layers} layers; the weights have {len(weights)} tensors in all")
    with torch.device("meta"):  # shapes only
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    stored = sum(tensor.numel() for tensor in weights.values())
    if model.num_parameters() > 2 * stored + 1_000_000:  # a new head is small
        raise ValueError(f"config.json describes {model.num_parameters()} parameters; the weights have {stored}")
    return model


def _require_fit(model: PreTrainedModel, loading: dict[str, Any]) -> None:
    """Raise ValueError if the weights have other shapes, or more layers, than config.json asks for."""
    for name, stored, expected in loading["mismatched_keys"]:
        raise ValueError(f"config.json wants {name} of shape {list(expected)}; the weights have {list(stored)}")
    prefix = f"{model.base_model_prefix}."
    names = {name.removeprefix(prefix) for name, _ in model.named_parameters()}
    for name in sorted(loading["unexpected_keys"]):
        if re.sub(r"\.\d+\.", ".0.", name.removeprefix(prefix)) in names:
            raise ValueError(f"the weights have {name}, a layer more than config.json asks for")


def _require_complete(
    directory: Path, settings: InferenceSettings, config: Any, missing: list[str], unexpected: list[str]
) -> None:
    """Raise UserError if the files of a fine-tuned model do not belong to one complete model."""
    if missing:
        raise UserError(
            f"{directory}: {_lacks(missing)}, so the stage train did not write it. "
            'Run "dvc repro", or name another directory.'
        )
    remedy = 'They belong to different models: copy the directory again, or run "dvc repro --force train".'
    labels = [str(config.id2label.get(number)) for number in range(config.num_labels)]
    if len(labels) == 1:  # transformers gives the one output of a regression a name
        labels = []
    for entry, expected, actual in (
        ("labels", settings.labels, labels),
        ("problem type", settings.problem_type, config.problem_type),
    ):
        if actual != expected:
            raise UserError(f"{directory}: {SETTINGS} has the {entry} {expected}, and config.json {actual}. {remedy}")
    if unexpected:
        raise UserError(f"{directory}: its weights have {unexpected[0]}, which config.json does not describe. {remedy}")


def _require_known_names(directory: Path, model: PreTrainedModel, missing: list[str]) -> None:
    """Raise UserError if a base model lacks most of its weights."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    if 2 * sum(sizes.get(name, 0) for name in missing) > sum(sizes.values()):
        raise UserError(
            f"{directory}: {_lacks(missing)}, most of the model. Use a checkpoint with the names of transformers."
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


def _file_versions(directory: Path) -> list[tuple[str, int, int]]:
    """Return name, inode and time of a model's files, or nothing if the directory is missing or vanishes meanwhile."""
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix in (".json", ".safetensors"))
        return [(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in files]
    except OSError:
        return []
