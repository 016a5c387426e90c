"""Export the fine-tuned model to ONNX, to run it without PyTorch.

Examples:
  # Install the packages that it needs, once:
  pip install -c requirements.lock -e '.[onnx]'
  # Write my-onnx/model.onnx if it gives the same predictions as PyTorch:
  python -m pipeline.export --onnx my-onnx
  # Also write smaller int8 weights:
  python -m pipeline.export --onnx my-onnx --int8

More: docs/use_the_model.md
"""

from argparse import ArgumentParser
from pathlib import Path

from pipeline.cli import as_command, command_parser


def options_parser() -> ArgumentParser:
    parser = command_parser("export", __doc__)
    parser.add_argument(
        "--onnx", metavar="DIRECTORY", type=Path, required=True,
        help="write the model and its tokenizer to this directory, which must not exist yet (required)",
    )  # fmt: skip
    parser.add_argument(
        "--int8", action="store_true",
        help="also write int8 weights, if they agree with fp32 on at least 99%% of the examples; otherwise nothing is "
        "written (default: only fp32)",
    )  # fmt: skip
    return parser


if __name__ == "__main__":  # --help must not wait for the imports below.
    options_parser().parse_args()

import contextlib
import io
import logging
import shutil
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pipeline.core.dataset_files import load_split
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output
from pipeline.core.paths import CLASSIFIER, TOKENIZED
from pipeline.core.task import read_task
from pipeline.evaluation.metrics import accuracy, logits_to_predictions
from pipeline.modeling.device import Device
from pipeline.modeling.loading import load_fine_tuned_model, load_tokenizer
from pipeline.modeling.scoring import predict_logits, scoring_trainer
from pipeline.modeling.settings import read_settings

_FP32, _INT8 = "model.onnx", "model_int8.onnx"
_PACKAGES = ("onnx", "onnxruntime", "onnxscript")  # They may be missing, so only functions import them.
_BATCH_SIZE = 16
_MAX_EXAMPLES = 4096  # per batch
_BLOCK_SIZE = 128  # weights that share a scale
_INT8_PRODUCTS = 4  # ONNX Runtime's `accuracy_level` for int8 inputs
# The largest difference between the logits of torch and ONNX, both in fp32. For a regression, in standard deviations.
_TOLERANCE = 1e-4
_ROUNDING_STEPS = 4  # The predictions of a regression may also differ by this many steps between fp32 numbers.
_MIN_AGREEMENT = 0.99  # between int8 and fp32


def export_onnx(classifier: Path, tokenized: Path, out: Path, int8: bool) -> None:
    """Write a directory with the ONNX model and its tokenizer.

    The files are written only if the logits of ONNX match the logits of torch on the split that verdicts are based on,
    and if int8 agrees with fp32 on 99% of its examples (for a regression: with an R2 of 0.99).

    Raises:
        UserError: A package is missing, the directory exists, or a check fails. Nothing is written then.
    """
    if out.exists():
        raise UserError(f"{out} already exists. Name a new directory, or remove this one.")
    for package in _PACKAGES:
        if not find_spec(package):
            raise UserError(f"{package} is not installed. Run \"pip install -c requirements.lock -e '.[onnx]'\".")
    task, settings = read_task(tokenized, "tokenize"), read_settings(classifier)
    examples = load_split(tokenized, task.verdict_split, "tokenize")
    tokenizer, model = load_tokenizer(classifier), load_fine_tuned_model(classifier, "cpu")

    def logits_of(engine: Any) -> NDArray[np.float32]:
        return predict_logits(scoring_trainer(engine, tokenizer, Device("cpu", "fp32"), _BATCH_SIZE), examples)

    with atomic_output(out) as draft:
        draft.mkdir()
        for file in classifier.iterdir():
            if file.is_file() and file.suffix != ".safetensors":
                shutil.copyfile(file, draft / file.name)  # It does not copy permissions: the model may be read-only.
        _write_onnx(model, tokenizer, settings.max_length, draft / _FP32)
        expected = logits_of(model)
        difference = float(abs(logits_of(OnnxModel(draft / _FP32)) - expected).max())
        tolerance = _TOLERANCE
        if task.problem_type == "regression":
            rounding_step = float(np.spacing(abs(expected.astype(np.float32)).max()))
            tolerance = _TOLERANCE * float(expected.std()) + _ROUNDING_STEPS * rounding_step
        if not difference <= tolerance:  # also if it is NaN
            raise UserError(
                f"The logits of ONNX differ from the logits of torch by up to {difference:.2g}, and at most "
                f"{tolerance:.2g} is allowed. Nothing was written."
            )
        log.info("the logits of ONNX differ from the logits of torch by at most %.2g", difference)
        if int8:
            _write_int8(draft / _FP32, draft / _INT8)
            logits = logits_of(OnnxModel(draft / _INT8))
            predictions = [logits_to_predictions(task.problem_type, values) for values in (expected, logits)]
            agreement_score = r2_score if task.problem_type == "regression" else accuracy
            agreement = float(agreement_score(*predictions)) if np.isfinite(logits).all() else 0.0
            if agreement < _MIN_AGREEMENT:
                raise UserError(
                    f"The agreement of int8 with fp32 is {agreement:.2%}, and at least {_MIN_AGREEMENT:.0%} is "
                    "required. Nothing was written. Export without --int8."
                )
            log.info("the agreement of int8 with fp32 is %.2f%%", 100 * agreement)
    sizes = (f"{file.name} {file.stat().st_size / 1e6:.0f} MB" for file in sorted(out.glob("model*.onnx*")))
    log.info("wrote %s (%s)", out, ", ".join(sizes))


def _write_onnx(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int, path: Path) -> None:
    """Export a model in fp32, for batches of up to 4,096 examples and texts of up to `max_length` tokens."""
    from transformers.exporters.configs import OnnxConfig
    from transformers.exporters.exporter_onnx import OnnxExporter

    texts = ["one text", "a longer text"]  # Their lengths differ, so that the attention mask has padding.
    inputs = dict(tokenizer(texts, padding=True, truncation=True, max_length=max_length, return_tensors="pt"))
    shape = {0: torch.export.Dim("batch", max=_MAX_EXAMPLES), 1: torch.export.Dim("tokens", min=2, max=max_length)}
    exporter: Any = OnnxExporter()  # type: ignore[no-untyped-call]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):  # It prints every step.
        exported = exporter.export(model, inputs, OnnxConfig(dynamic_shapes=dict.fromkeys(inputs, shape)))
    OnnxExporter.save_program(exported.program, path)


def _write_int8(path: Path, out: Path) -> None:
    """Write a copy of a model whose matrix products use int8 weights and int8 inputs.

    Each block of 128 weights has its own scale, and so has each row of the inputs. The quantizers of transformers call
    `quantize_dynamic` or `quantize_static`, which use one scale for a whole batch of inputs. That is three times as
    fast, but a few large inputs then cost MPNet one point of accuracy, or five points if each weight matrix has only
    one scale.
    """
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    logging.getLogger("onnxruntime.quantization").setLevel(logging.ERROR)
    quantizer = MatMulNBitsQuantizer(
        onnx.load(path), bits=8, block_size=_BLOCK_SIZE, is_symmetric=True, accuracy_level=_INT8_PRODUCTS
    )
    quantizer.process()
    onnx.save(quantizer.model.model, out)


class OnnxModel(torch.nn.Module):
    """An ONNX file with the interface of a transformers classifier. It runs on the CPU with torch's threads."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._names = [entry.name for entry in self._session.get_inputs()]

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        [logits] = self._session.run(["logits"], {name: inputs[name].numpy() for name in self._names})
        return {"logits": torch.from_numpy(logits)}


def main() -> None:
    arguments = options_parser().parse_args()
    with as_command():
        export_onnx(CLASSIFIER, TOKENIZED, arguments.onnx, arguments.int8)


if __name__ == "__main__":
    main()
