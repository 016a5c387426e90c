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

import shutil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.dataset_files import load_split
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output
from pipeline.core.paths import CLASSIFIER, TOKENIZED
from pipeline.core.task import read_task
from pipeline.evaluation.metrics import logits_to_predictions
from pipeline.modeling.device import Device
from pipeline.modeling.loading import load_fine_tuned_model, load_tokenizer
from pipeline.modeling.scoring import predict_logits, scoring_trainer
from pipeline.modeling.settings import read_settings

_FP32, _INT8 = "model.onnx", "model_int8.onnx"
_BATCH_SIZE = 16
_LOGIT_TOLERANCE = 1e-4  # between torch and ONNX, both in fp32
_LEAST_AGREEMENT = 0.99  # between int8 and fp32


def export_onnx(classifier: Path, tokenized: Path, out: Path, int8: bool) -> None:
    """Write a directory with the ONNX model and its tokenizer.

    The files are written only if the logits of ONNX match the logits of torch on the split that verdicts are based on,
    and if int8 agrees with fp32 on 99% of its examples.

    Raises:
        UserError: A package is missing, the directory exists, or a check fails. Nothing is written then.
    """
    if out.exists():
        raise UserError(f"{out} already exists. Name a new directory, or remove this one.")
    try:
        from pipeline.modeling import onnx_model
    except ModuleNotFoundError as error:
        raise UserError(
            f"{error.name} is not installed. Run \"pip install -c requirements.lock -e '.[onnx]'\"."
        ) from None

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
        onnx_model.export(model, tokenizer, settings.max_length, draft / _FP32)
        expected = logits_of(model)
        difference = float(abs(logits_of(onnx_model.OnnxModel(draft / _FP32)) - expected).max())
        if not difference <= _LOGIT_TOLERANCE:  # also if it is NaN
            raise UserError(
                f"The logits of ONNX differ from the logits of torch by up to {difference:.2g}, and at most "
                f"{_LOGIT_TOLERANCE:g} is allowed. Nothing was written."
            )
        log.info("the logits of ONNX differ from the logits of torch by at most %.2g", difference)
        if int8:
            onnx_model.quantize(draft / _FP32, draft / _INT8)
            logits = logits_of(onnx_model.OnnxModel(draft / _INT8))
            agreement = _agreement(
                logits_to_predictions(task.problem_type, expected), logits_to_predictions(task.problem_type, logits)
            )
            if not agreement >= _LEAST_AGREEMENT:  # also if it is NaN
                raise UserError(
                    f"The agreement of int8 with fp32 is {agreement:.2%}, and at least {_LEAST_AGREEMENT:.0%} is "
                    "required. Nothing was written. Export without --int8."
                )
            log.info("the agreement of int8 with fp32 is %.2f%%", 100 * agreement)
    sizes = (f"{file.name} {file.stat().st_size / 1e6:.0f} MB" for file in sorted(out.glob("model*.onnx*")))
    log.info("wrote %s (%s)", out, ", ".join(sizes))


def _agreement(expected: NDArray[Any], predictions: NDArray[Any]) -> float:
    """Return the proportion of equal predictions.

    For a regression, return the proportion of the variance of the expected predictions that the other predictions
    explain.
    """
    if expected.dtype.kind == "f":
        return float(1 - np.square(predictions - expected).mean() / np.square(expected - expected.mean()).mean())
    return float((predictions == expected).reshape(len(expected), -1).all(axis=1).mean())


def main() -> None:
    arguments = options_parser().parse_args()
    with as_command():
        export_onnx(CLASSIFIER, TOKENIZED, arguments.onnx, arguments.int8)


if __name__ == "__main__":
    main()
