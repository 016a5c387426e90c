"""Export the fine-tuned model to ONNX, to run it without PyTorch.

Examples:
  # Install the packages that it needs, once:
  pip install -c requirements.lock -e '.[onnx]'
  # Write my-onnx/model.onnx if it gives the same predictions as PyTorch:
  python -m pipeline.export --onnx my-onnx

More: docs/use_the_model.md
"""

import contextlib
import io
import logging
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding
from transformers.exporters.base import ExportedModel
from transformers.exporters.configs import OnnxConfig
from transformers.exporters.exporter_onnx import OnnxExporter

from pipeline.cli import as_command, command_parser
from pipeline.core.dataset_files import load_examples
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output, write_json
from pipeline.core.paths import CLASSIFIER, SETTINGS, TOKENIZED
from pipeline.core.task import read_task
from pipeline.modeling.classifier import read_settings
from pipeline.modeling.loading import load_fine_tuned_model
from pipeline.modeling.scoring import longest_first
from pipeline.modeling.tokenization import load_tokenizer

_BATCH_SIZE, _MAX_BATCH_SIZE = 16, 4096  # of the check, and of the exported model
_TOLERANCE = 1e-4  # between the logits of torch and ONNX, both in fp32; for a regression, in standard deviations
_ROUNDING = 1e-6  # The logits of a regression, such as years, may also differ in their last digits.


def export_onnx(classifier: Path, tokenized: Path, out: Path) -> None:
    """Write a directory with the ONNX model, its tokenizer and its settings.

    Raises:
        UserError: A package is missing, the directory exists, or the logits of ONNX differ from the logits of torch on
            the split that verdicts are based on. Nothing is written then.
    """
    if out.exists():
        raise UserError(f"{out} already exists. Name a new directory, or remove this one.")
    if missing := [package for package in ("onnx", "onnxruntime", "onnxscript") if not find_spec(package)]:
        raise UserError(f"{missing[0]} is not installed. Run \"pip install -c requirements.lock -e '.[onnx]'\".")
    task, settings = read_task(tokenized), read_settings(classifier)
    examples = load_examples(tokenized, task.verdict_split)
    tokenizer, model = load_tokenizer(classifier), load_fine_tuned_model(classifier, "cpu")
    inputs = examples.select(longest_first(examples)).select_columns(tokenizer.model_input_names)
    batches = DataLoader(inputs, _BATCH_SIZE, collate_fn=DataCollatorWithPadding(tokenizer))
    with atomic_output(out) as draft:
        tokenizer.save_pretrained(draft)
        write_json(draft / SETTINGS, settings._asdict())
        lengths = {"padding": True, "truncation": True, "max_length": settings.max_length}
        sample = tokenizer(["one text", "a longer text"], **lengths, return_tensors="pt")  # One text has padding.
        exported = _export(model, sample, settings.max_length, draft)
        with torch.no_grad():
            logits = [(model(**batch).logits, exported(**batch).logits) for batch in batches]
        expected, actual = (torch.cat(engine) for engine in zip(*logits, strict=True))
        log.info("The logits of ONNX differ from the logits of torch by at most %.2g.", (actual - expected).abs().max())
        tolerance = _TOLERANCE * (float(expected.std()) if task.is_regression else 1)
        if not torch.allclose(actual, expected, rtol=_ROUNDING, atol=tolerance):  # also if a logit is NaN
            raise UserError(f"The logits of ONNX may differ by at most {tolerance:.2g}. Nothing was written.")
    log.info("Wrote %s.", out)


def _export(model: Any, sample: Any, max_length: int, directory: Path) -> Any:
    """Export a model in fp32, for texts of up to `max_length` tokens, and load it as its users do."""
    shape = {0: torch.export.Dim("batch", max=_MAX_BATCH_SIZE), 1: torch.export.Dim("tokens", min=2, max=max_length)}
    config = OnnxConfig(dynamic_shapes=dict.fromkeys(sample, shape))
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):  # It prints every step.
        OnnxExporter().export(model, sample, config).save_pretrained(directory)  # type: ignore[no-untyped-call]
    return ExportedModel.from_pretrained(directory, device="cpu")


def main() -> None:
    parser = command_parser("export", __doc__)
    parser.add_argument(
        "--onnx", metavar="DIRECTORY", type=Path, required=True,
        help="write the model and its tokenizer to this directory, which must not exist yet (required)",
    )  # fmt: skip
    arguments = parser.parse_args()
    with as_command():
        export_onnx(CLASSIFIER, TOKENIZED, arguments.onnx)


if __name__ == "__main__":
    main()
