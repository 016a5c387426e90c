"""Model directories in, models and tokenizers out: safetensors only, no remote code, errors in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.stage import UserError, log

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def load_tokenizer(directory: Path) -> "PreTrainedTokenizerBase":
    """The fast tokenizer of a model directory. Raises UserError where it does not load or cannot pad."""
    from transformers import AutoTokenizer

    with _one_line(directory):
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
    if tokenizer.pad_token is None:
        raise UserError(
            f"{directory}: its tokenizer has no padding token, so pairs cannot be batched; use another model"
        )
    return tokenizer


def load_classifier(directory: Path, **config: Any) -> "PreTrainedModel":
    """A sequence classifier in fp32, with entries of its config changed.

    What the directory lacks is drawn at random, and logged; so is a head for another number of classes.
    Raises UserError where it does not load.
    """
    from transformers import AutoModelForSequenceClassification

    with _one_line(directory):
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            directory,
            dtype="float32",  # of the weights that are trained; autocast lowers the precision where it is safe
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **config,
        )
    drawn = sorted({*loading["missing_keys"], *(name for name, *_ in loading["mismatched_keys"])})
    if drawn:
        log.info("drawn at random, not in %s: %s", directory, ", ".join(drawn))
    return model  # type: ignore[no-any-return]


@contextmanager
def _one_line(directory: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{directory} does not load: {' '.join(str(error).split())}") from error
