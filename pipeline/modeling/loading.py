"""Load models and tokenizers: safetensors only, no remote code, errors in one line."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.messages import UserError, log
from pipeline.modeling.first_token import first_token_only

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def load_tokenizer(directory: Path) -> "PreTrainedTokenizerBase":
    """The fast tokenizer of a model directory. Raises UserError where it does not load or cannot pad."""
    with _one_line(directory):
        if known := _known_tokenizer(directory):
            import transformers

            name, vocab_size = known
            tokenizer: PreTrainedTokenizerBase = getattr(transformers, name).from_pretrained(directory)
        else:
            from transformers import AutoConfig, AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
            config = AutoConfig.from_pretrained(directory, trust_remote_code=False)
            vocab_size = getattr(config, "vocab_size", len(tokenizer))
        if len(tokenizer) > vocab_size:
            raise ValueError(f"its tokenizer has {len(tokenizer)} tokens, its model {vocab_size}")
    if tokenizer.pad_token is None:
        raise UserError(
            f"{directory}: its tokenizer has no padding token, so texts cannot be batched; use another model"
        )
    for entry in ("is_local", "local_files_only"):  # how it was found; with HF_HUB_OFFLINE, other bytes would be saved
        tokenizer.init_kwargs.pop(entry, None)
    return tokenizer


# Model types, each with the class of its own tokenizer.
_TOKENIZERS = {
    "bert": "BertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
}


def _known_tokenizer(directory: Path) -> tuple[str, int] | None:
    """The class that AutoTokenizer would take, and the size of the model's vocabulary; None where only it can tell.

    AutoTokenizer imports torch, which takes longer than to tokenize MRPC.
    """
    try:
        model, tokenizer = (
            json.loads((directory / name).read_text(encoding="utf-8"))
            for name in ("config.json", "tokenizer_config.json")
        )
        own, vocab_size = _TOKENIZERS[model["model_type"]], model["vocab_size"]
        declared = tokenizer["tokenizer_class"].removesuffix("Fast")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # missing, or not as it should be
        return None
    plain = declared == own and isinstance(vocab_size, int) and "auto_map" not in {*model, *tokenizer}
    return (own, vocab_size) if plain else None


def load_classifier(directory: Path, device: str, trained: bool = False, **config: Any) -> "PreTrainedModel":
    """A sequence classifier in fp32, in main memory, with entries of its config changed.

    Weights that the directory lacks are drawn at random, and logged; so is a head for another number of classes.
    Raises UserError where it does not load, where weights are to be drawn of a model that is `trained`, and where most
    would be: their names are those of another library then.
    """
    from transformers import AutoModelForSequenceClassification

    with _one_line(directory):
        _refuse_a_config_beyond_the_weights(directory)
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            directory,
            dtype="float32",  # of the weights that are trained; autocast lowers the precision where it is safe
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **config,
        )
        for name, stored, wanted in loading["mismatched_keys"]:
            if stored[1:] != wanted[1:] or wanted[0] != model.config.num_labels:  # a head for another number of classes
                raise ValueError(f"config.json wants {name} of shape {list(wanted)}; the weights have {list(stored)}")
    for parameter in model.parameters():
        # safetensors only maps the file into memory; truncated while the stage runs, it would crash the process.
        parameter.data = parameter.data.clone()
    drawn = sorted({*loading["missing_keys"], *(name for name, *_ in loading["mismatched_keys"])})
    if drawn:
        sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
        lacks = f"its weights lack {drawn[0]}" + (f" and {len(drawn) - 1} more" if len(drawn) > 1 else "")
        if trained:
            raise UserError(
                f'{directory}: {lacks}, so it is not what stage train has written; run "dvc repro", or name another'
            )
        if 2 * sum(sizes.get(name, 0) for name in drawn) > sum(sizes.values()):
            raise UserError(
                f"{directory}: {lacks}, most of the model; take a checkpoint with the names of transformers"
            )
        log.info("drawn at random, not in %s: %s", directory, ", ".join(drawn))
    first_token_only(model)
    if model.config.problem_type == "regression":
        from pipeline.modeling.regression_head import replace_head

        replace_head(model, drawn)
    if device == "cpu":
        # With dropout, PyTorch's scaled dot product attention computes in fp32 what autocast has made bf16.
        model.set_attn_implementation("eager")
    return model  # type: ignore[no-any-return]


def _refuse_a_config_beyond_the_weights(directory: Path) -> None:
    """Raise ValueError where config.json describes a model far larger than the weights beside it.

    A wrong config would make transformers allocate memory, or build layers, without end.
    """
    import torch
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForSequenceClassification

    shapes = []
    for file in directory.glob("model*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            shapes += [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
    stored = sum(map(math.prod, shapes))
    config = AutoConfig.from_pretrained(directory, trust_remote_code=False)
    layers = getattr(config, "num_hidden_layers", 0)
    if layers > len(shapes):
        raise ValueError(f"config.json asks for {layers} layers; the weights have {len(shapes)} tensors in all")
    with torch.device("meta"):  # shapes only
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    described = sum(parameter.numel() for parameter in model.parameters())
    if described > 2 * stored + 1_000_000:  # a new head is small
        raise ValueError(f"config.json describes {described} parameters; the weights have {stored}")


@contextmanager
def _one_line(directory: Path) -> Iterator[None]:
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    try:
        yield
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError, StrictDataclassError,
    ) as error:  # fmt: skip
        raise UserError(f"{directory} does not load: {' '.join(str(error).split())}") from error
