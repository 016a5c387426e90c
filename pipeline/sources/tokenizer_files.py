"""Make tokenizer.json, the file of a fast tokenizer, for models that were published with a vocabulary only."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.messages import UserError, log
from pipeline.core.output import write_json
from pipeline.sources.fetch import describe_error

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# The files of each kind of vocabulary: SentencePiece, byte-level BPE, WordPiece.
VOCABULARIES = (
    ("spm.model",), ("spiece.model",), ("sentencepiece.bpe.model",), ("vocab.json", "merges.txt"), ("vocab.txt",),
)  # fmt: skip
_CONFIG = "tokenizer_config.json"
_SOME_ENTRIES = 100


def vocabulary_files(present: Collection[str]) -> list[str]:
    """Return the files of a model that a fast tokenizer can be made from, or an empty list if it has none."""
    return next((list(files) for files in VOCABULARIES if set(files) <= set(present)), [])


def add_tokenizer(model: Path, vocabulary: list[str], checkpoint: str) -> None:
    """Write tokenizer.json to a directory with config.json and a vocabulary, the way transformers reads them.

    For a WordPiece vocabulary, tokenizer_config.json also gets a missing setting: whether texts are lowercased.

    Args:
        vocabulary: The names of the files of the vocabulary.
        checkpoint: The name or path of the model for messages.

    Raises:
        UserError: The files cannot be read, or transformers would make a tokenizer that does not fit them.
    """
    try:
        entries = _read_vocabulary(model / vocabulary[0])
        if vocabulary == ["vocab.txt"]:
            _state_casing(model / _CONFIG, entries, checkpoint)
        published = _load(model)
        if not published.is_fast:
            raise ValueError(f"transformers has no fast version of {type(published).__name__}")
        published.backend_tokenizer.save(str(model / "tokenizer.json"))
        _require_fit(_load(model), published, entries)
    except Exception as error:  # tokenizers raises plain Exceptions, and damaged files can cause almost any other.
        raise UserError(
            f"{checkpoint} has no tokenizer.json, and none can be made from {vocabulary[0]}: {describe_error(error)}. "
            "Use a model with a tokenizer.json."
        ) from error
    log.info("%s: made tokenizer.json from %s", checkpoint, " and ".join(vocabulary))


def _load(model: Path) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, trust_remote_code=False, local_files_only=True)


def _read_vocabulary(path: Path) -> list[str]:
    """Return the entries of a vocabulary."""
    if path.suffix == ".model":
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

        return [piece.piece for piece in ModelProto.FromString(path.read_bytes()).pieces]
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return list(json.loads(text))
    lines = [line.strip() for line in text.split("\n")]
    return list(dict.fromkeys(line for line in lines if line))


def _state_casing(path: Path, entries: list[str], checkpoint: str) -> None:
    """Write to tokenizer_config.json whether texts are lowercased, because transformers always would by default."""
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if "do_lower_case" in config:
        return
    # The special tokens are uppercase in any case.
    words = [entry for entry in entries if not entry.startswith(("[", "<"))]
    lowercase = all(word == word.lower() for word in words)
    write_json(path, config | {"do_lower_case": lowercase})
    log.warning(
        "%s does not say whether it is cased. Its vocabulary has %s uppercase letters, so texts are %s.",
        checkpoint, "no" if lowercase else "words with", "lowercased" if lowercase else "not lowercased",
    )  # fmt: skip


def _require_fit(
    tokenizer: "PreTrainedTokenizerBase", published: "PreTrainedTokenizerBase", entries: list[str]
) -> None:
    """Raise ValueError if a tokenizer, loaded from tokenizer.json, does not fit its vocabulary.

    Args:
        published: The tokenizer, loaded from the published vocabulary.
        entries: The entries of the vocabulary.
    """
    token_count = len(tokenizer.get_vocab())
    if token_count < len(entries):  # transformers can silently build a tokenizer with nothing but its special tokens.
        raise ValueError(
            f"the tokenizer would have {token_count} tokens, but the vocabulary has {len(entries)} entries"
        )
    words = [entry.lstrip("▁Ġ") for entry in entries[:: len(entries) // _SOME_ENTRIES + 1]]  # without word markers
    text = " ".join(words) + " \u2603"  # a character that hardly any vocabulary contains
    if tokenizer(text, text)["input_ids"] != published(text, text)["input_ids"]:
        raise ValueError("transformers would split texts differently after it has saved the tokenizer")
