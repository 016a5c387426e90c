"""Load models and tokenizers: safetensors only, no remote code, errors in one line."""

import json
import math
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.messages import UserError, log
from pipeline.core.paths import SETTINGS
from pipeline.modeling.first_token import first_token_only
from pipeline.modeling.heads import InheritedHead, head_modules, inherited_head
from pipeline.modeling.settings import InferenceSettings, read_settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def load_tokenizer(directory: Path) -> "PreTrainedTokenizerBase":
    """The fast tokenizer of a model directory, which pads with the end-of-text token if it has no padding token.

    Raises UserError if it does not load, or has neither of these tokens.
    """
    with reading_model(directory):
        if not (directory / "tokenizer.json").is_file():
            raise ValueError(
                "it has no tokenizer.json, and one that is made from other files could split texts otherwise"
            )
        if known := _known_tokenizer(directory):
            import transformers

            name, vocab_size = known
            tokenizer: PreTrainedTokenizerBase = getattr(transformers, name).from_pretrained(
                directory, local_files_only=True
            )
        else:
            from transformers import AutoConfig, AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
            config = AutoConfig.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
            vocab_size = getattr(config, "vocab_size", len(tokenizer))
        tokens = max(tokenizer.get_vocab().values(), default=-1) + 1
        if tokens > vocab_size:
            raise ValueError(f"its tokenizer has {tokens} tokens, its model {vocab_size}")
        if not {"input_ids", "attention_mask"} <= set(tokenizer.model_input_names):
            raise ValueError(f"its tokenizer gives {tokenizer.model_input_names}, without input_ids or attention_mask")
        # A tokenizer without its token for unknown words fails at the first one. The backend keeps its settings.
        tokenizer.backend_tokenizer.encode("\u2603")
    if tokenizer.pad_token is None:
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
    for entry in ("is_local", "local_files_only"):  # how it was found; with HF_HUB_OFFLINE, other bytes would be saved
        tokenizer.init_kwargs.pop(entry, None)
    return tokenizer


_DTYPES = {"F64", "F32", "F16", "BF16"}  # safetensors' names for what can be trained

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
    with reading_model(directory):
        if trained:
            settings = read_settings(directory)
        described, stored = _described_model(directory)
        head = None if trained else inherited_head(described, stored)
        rows = head.rows_for(labels) if head else None
        options: dict[str, Any] = {
            "dtype": "float32",  # of the weights that are trained; autocast lowers the precision where it is safe
            "ignore_mismatched_sizes": True,
            "output_loading_info": True,
        }
        local = {"trust_remote_code": False, "local_files_only": True}
        if head and rows is None:  # as for a checkpoint without a head
            weights = _weights_without(head_modules(described), directory)
            changed = AutoConfig.from_pretrained(directory, **local, **config)
            model_class: Any = type(described)
            model, loading = model_class.from_pretrained(None, config=changed, state_dict=weights, **options)
        else:
            model, loading = AutoModelForSequenceClassification.from_pretrained(
                directory, use_safetensors=True, **local, **options, **config
            )
        for name, found, wanted in loading["mismatched_keys"]:
            raise ValueError(f"config.json wants {name} of shape {list(wanted)}; the weights have {list(found)}")
        _require_all_layers(model, loading["unexpected_keys"])
        for name, parameter in model.named_parameters():
            # safetensors only maps the file into memory; truncated while the stage runs, it would crash the process.
            parameter.data = parameter.data.clone()
            if not parameter.isfinite().all():
                raise ValueError(f"its weights hold NaN or infinite numbers, in {name}")
        first_token_only(model)
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
    if trained:
        _require_agreement(settings, model.config, loading["unexpected_keys"], directory)
    elif head:
        _adapt_head(model, head, rows, labels, directory)
    elif new:
        log.info("newly initialized, because %s lacks them: %s", directory, ", ".join(new))
    if model.config.problem_type == "regression":
        from pipeline.modeling.regression_head import replace_head

        replace_head(model, new)
    if device == "cpu":
        # With dropout, PyTorch's scaled dot product attention computes in fp32 what autocast has made bf16.
        model.set_attn_implementation("eager")
    return model  # type: ignore[no-any-return]


def _require_all_layers(model: Any, unexpected: Collection[str]) -> None:
    """Raise ValueError if the weights have more layers than config.json asks for."""
    names = {name.removeprefix(f"{model.base_model_prefix}.") for name, _ in model.named_parameters()}
    for name in sorted(unexpected):
        first_layer = re.sub(r"\.\d+\.", ".0.", name.removeprefix(f"{model.base_model_prefix}."))
        if first_layer in names:
            raise ValueError(f"the weights have {name}, a layer more than config.json asks for")


def _require_agreement(settings: InferenceSettings, config: Any, unexpected: Collection[str], directory: Path) -> None:
    """Raise UserError if the files of a trained model are not those of one model."""
    names = [str(config.id2label.get(number)) for number in range(config.num_labels)]
    labels = names if settings.labels or len(names) > 1 else []  # of a regression, transformers gives the one a name
    for what, ours, theirs in (
        ("labels", settings.labels, labels),
        ("problem type", settings.problem_type, config.problem_type),
    ):
        if ours != theirs:
            raise UserError(
                f"{directory}: {SETTINGS} has the {what} {ours}, and config.json {theirs}; they belong to different "
                'models: copy the directory again, or run "dvc repro --force train"'
            )
    if unexpected:
        raise UserError(
            f"{directory}: its weights have {min(unexpected)}, which config.json does not describe; they belong to "
            'different models: copy the directory again, or run "dvc repro --force train"'
        )


def _adapt_head(model: Any, head: InheritedHead, rows: list[int] | None, labels: list[str], directory: Path) -> None:
    """Put the rows of an inherited head into the order of the labels, and log what became of the head."""
    answers = "a regression head" if head.regression else f"a head for {', '.join(head.labels)}"
    if rows is None:
        wanted = f"the labels are {', '.join(labels)}" if labels else "the labels are numbers"
        log.info("%s has %s, but %s: its head is newly initialized", directory, answers, wanted)
    elif rows == sorted(rows):
        log.info("%s has %s, as the labels are: its head is kept", directory, answers)
    else:
        for parameter in model.get_submodule(head.layer).parameters():
            parameter.data = parameter.data[rows]
        wanted = ", ".join(labels)
        log.info("%s has %s, and the labels are %s: the rows of its head are reordered", directory, answers, wanted)


def _described_model(directory: Path) -> tuple["PreTrainedModel", dict[str, list[int]]]:
    """The model that config.json describes, without weights, and the shapes of the stored weights by name.

    Raises ValueError if it is far larger than these: a wrong config would make transformers allocate memory, or build
    layers, without end.
    """
    import torch
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForSequenceClassification

    shapes: dict[str, list[int]] = {}
    for file in directory.glob("model*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                shapes[name] = weights.get_slice(name).get_shape()
                if name.endswith(".weight") and (dtype := weights.get_slice(name).get_dtype()) not in _DTYPES:
                    raise ValueError(f"{name} in {file.name} has numbers of type {dtype}, which cannot be trained")
    stored = sum(map(math.prod, shapes.values()))
    config = AutoConfig.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
    for entry in ("num_hidden_layers", "num_attention_heads"):
        if getattr(config, entry, 1) < 1:
            raise ValueError(f"config.json has {getattr(config, entry)} as {entry}")
    layers = getattr(config, "num_hidden_layers", 1)
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
def reading_model(directory: Path) -> Iterator[None]:
    """Raise UserError, in one line, for whatever fails in the block, and if the model is replaced meanwhile."""
    before, failure = _versions(directory), None
    try:
        yield
    except Exception as error:  # a damaged file can raise anything in transformers, tokenizers and torch
        failure = error
    if _versions(directory) != before:
        raise UserError(f"{directory}: the model was replaced while it was read; run again") from failure
    if isinstance(failure, UserError):
        raise failure
    if failure:
        reason = " ".join(str(failure).split()) or type(failure).__name__
        raise UserError(f"{directory} does not load: {reason}") from failure


def _versions(directory: Path) -> dict[str, tuple[int, int, int]] | None:
    """What tells one version of a model's files from another: inode, time and size by name. None if it is not there."""
    try:
        files = [path for path in directory.iterdir() if path.suffix in (".json", ".safetensors")]
        return {path.name: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for path in files for stat in [path.stat()]}
    except OSError:
        return None
