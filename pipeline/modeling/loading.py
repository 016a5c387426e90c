"""Load models and tokenizers: safetensors only, no remote code, errors in one line."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.messages import UserError, log
from pipeline.modeling.first_token import first_token_only
from pipeline.modeling.heads import InheritedHead, head_modules, inherited_head

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

    Weights that the directory lacks are newly initialized, and logged. The head of a base model that was fine-tuned
    before is kept if it has the same classes, with its rows in the order of `id2label` in `config`; a head for other
    classes is newly initialized.
    Raises UserError if the model does not load, if weights of a `trained` model are missing, and if most weights are
    missing: their names are those of another library then.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification

    labels = [str(name) for name in config.get("id2label", {}).values()]
    with _one_line(directory):
        described, stored = _described_model(directory)
        head = None if trained else inherited_head(described, stored)
        rows = head.rows_for(labels) if head else None
        options: dict[str, Any] = {
            "dtype": "float32",  # of the weights that are trained; autocast lowers the precision where it is safe
            "ignore_mismatched_sizes": True,
            "output_loading_info": True,
        }
        if head and rows is None:  # as for a checkpoint without a head
            weights = _weights_without(head_modules(described), directory)
            changed = AutoConfig.from_pretrained(directory, trust_remote_code=False, **config)
            model_class: Any = type(described)
            model, loading = model_class.from_pretrained(None, config=changed, state_dict=weights, **options)
        else:
            model, loading = AutoModelForSequenceClassification.from_pretrained(
                directory, trust_remote_code=False, use_safetensors=True, **options, **config
            )
        for name, found, wanted in loading["mismatched_keys"]:
            raise ValueError(f"config.json wants {name} of shape {list(wanted)}; the weights have {list(found)}")
    for parameter in model.parameters():
        # safetensors only maps the file into memory; truncated while the stage runs, it would crash the process.
        parameter.data = parameter.data.clone()
    new = sorted(loading["missing_keys"])
    if new:
        sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
        lacks = f"its weights lack {new[0]}" + (f" and {len(new) - 1} more" if len(new) > 1 else "")
        if trained:
            raise UserError(
                f'{directory}: {lacks}, so it is not what stage train has written; run "dvc repro", or name another'
            )
        if 2 * sum(sizes.get(name, 0) for name in new) > sum(sizes.values()):
            raise UserError(
                f"{directory}: {lacks}, most of the model; take a checkpoint with the names of transformers"
            )
    if head:
        _adapt_head(model, head, rows, labels, directory)
    elif new:
        log.info("newly initialized, because %s lacks them: %s", directory, ", ".join(new))
    first_token_only(model)
    if device == "cpu":
        # With dropout, PyTorch's scaled dot product attention computes in fp32 what autocast has made bf16.
        model.set_attn_implementation("eager")
    return model  # type: ignore[no-any-return]


def _adapt_head(model: Any, head: InheritedHead, rows: list[int] | None, labels: list[str], directory: Path) -> None:
    """Put the rows of an inherited head into the order of the labels, and log what became of the head."""
    names = ", ".join(head.labels)
    if rows is None:
        classes = f"the labels are {', '.join(labels)}" if labels else "the task has no classes"
        log.info("%s has a head for %s, but %s: the head is newly initialized", directory, names, classes)
    elif rows == sorted(rows):
        log.info("%s has a head for the same labels, which is kept: %s", directory, names)
    else:
        layer = model.get_submodule(head.layer)
        for parameter in layer.parameters():
            parameter.data = parameter.data[rows]
        log.info(
            "%s has a head for the same labels in another order (%s); its rows are reordered: %s",
            directory, names, ", ".join(labels),
        )  # fmt: skip


def _described_model(directory: Path) -> tuple["PreTrainedModel", dict[str, list[int]]]:
    """The model that config.json describes, without weights, and the shapes of the weights beside it, by name.

    Raises ValueError if it is far larger than these: a wrong config would make transformers allocate memory, or build
    layers, without end.
    """
    import torch
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForSequenceClassification

    shapes: dict[str, list[int]] = {}
    for file in directory.glob("model*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            shapes |= {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
    stored = sum(map(math.prod, shapes.values()))
    config = AutoConfig.from_pretrained(directory, trust_remote_code=False)
    layers = getattr(config, "num_hidden_layers", 0)
    if layers > len(shapes):
        raise ValueError(f"config.json asks for {layers} layers; the weights have {len(shapes)} tensors in all")
    with torch.device("meta"):  # shapes only
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    described = sum(parameter.numel() for parameter in model.parameters())
    if described > 2 * stored + 1_000_000:  # a new head is small
        raise ValueError(f"config.json describes {described} parameters; the weights have {stored}")
    return model, shapes


def _weights_without(modules: list[str], directory: Path) -> dict[str, Any]:
    """The weights of a model directory, without those of some of the model's top modules."""
    from safetensors.torch import load_file

    weights = {
        name: tensor for file in directory.glob("model*.safetensors") for name, tensor in load_file(file).items()
    }
    return {name: tensor for name, tensor in weights.items() if name.split(".")[0] not in modules}


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
