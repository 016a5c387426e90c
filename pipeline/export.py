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
import time
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.core.dataset_files import load_split
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output
from pipeline.core.paths import CLASSIFIER, TOKENIZED
from pipeline.core.task import read_task
from pipeline.core.text import aligned
from pipeline.evaluation.metrics import METRICS, Metric, logits_to_predictions
from pipeline.modeling.device import Device, usable_device
from pipeline.modeling.loading import load_fine_tuned_model, load_tokenizer
from pipeline.modeling.scoring import predict_logits, scoring_trainer
from pipeline.modeling.settings import read_settings
from pipeline.params import Precision

_FP32, _INT8 = "model.onnx", "model_int8.onnx"
_BATCH_SIZE = 16
_LOGIT_TOLERANCE = 1e-4  # between torch and ONNX, both in fp32
_LEAST_AGREEMENT = 0.99  # between int8 and fp32


class EngineResult(NamedTuple):
    """The predictions of an engine for all examples, the size of its weights in bytes, and its time."""

    engine: str
    size: int
    seconds: float
    logits: NDArray[np.float32]
    predictions: NDArray[Any]


def export_onnx(classifier: Path, tokenized: Path, out: Path, int8: bool) -> None:
    """Write a directory with the ONNX model and its tokenizer, and print the size, speed and score of each engine.

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

    def score(engine: str, engine_model: Any, file: Path, precision: Precision = "fp32") -> EngineResult:
        trainer = scoring_trainer(engine_model, tokenizer, Device("cpu", precision), _BATCH_SIZE)
        start = time.monotonic()
        logits = predict_logits(trainer, examples)
        seconds = time.monotonic() - start
        size = sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))  # includes model.onnx.data
        return EngineResult(engine, size, seconds, logits, logits_to_predictions(task.problem_type, logits))

    with atomic_output(out) as draft:
        draft.mkdir()
        for file in classifier.iterdir():
            if file.is_file() and file.suffix != ".safetensors":
                shutil.copyfile(file, draft / file.name)  # It does not copy permissions: the model may be read-only.
        onnx_model.export(model, tokenizer, settings.max_length, draft / _FP32)
        weights = classifier / "model.safetensors"
        torch_result = score("torch fp32", model, weights)
        results = [torch_result]
        if usable_device("auto") == ("cpu", "bf16"):  # Other CPUs would emulate it.
            results.append(score("torch bf16", model, weights, "bf16"))
        onnx_result = score("ONNX fp32", onnx_model.OnnxModel(draft / _FP32), draft / _FP32)
        results.append(onnx_result)
        difference = float(abs(onnx_result.logits - torch_result.logits).max())
        if not difference <= _LOGIT_TOLERANCE:  # also if it is NaN
            raise UserError(
                f"The logits of ONNX differ from the logits of torch by up to {difference:.2g}, and at most "
                f"{_LOGIT_TOLERANCE:g} is allowed. Nothing was written."
            )
        log.info("the logits of ONNX differ from the logits of torch by at most %.2g", difference)
        if int8:
            onnx_model.quantize(draft / _FP32, draft / _INT8)
            results.append(score("ONNX int8", onnx_model.OnnxModel(draft / _INT8), draft / _INT8))
        labels = examples.with_format("numpy")["labels"][:]
        _print_table(results, METRICS[task.metrics[0]], labels, task.noun)
        threads = torch.get_num_threads()
        print(f"{len(examples)} {task.verdict_split} {task.noun}, {threads} threads. Agreement is with torch fp32.")
        agreement = _agreement(torch_result, results[-1])
        if int8 and not agreement >= _LEAST_AGREEMENT:  # also if it is NaN
            raise UserError(
                f"int8 agrees with fp32 on {agreement:.2%} of the {task.noun}, and at least {_LEAST_AGREEMENT:.0%} is "
                "required. Nothing was written. Export without --int8."
            )
    log.info("wrote %s", out)


def _print_table(results: list[EngineResult], metric: Metric, labels: NDArray[Any], noun: str) -> None:
    rows = [["", "MB", f"{noun} per second", metric.title, "agreement"]]
    for result in results:
        megabytes, speed = result.size / 1e6, len(labels) / result.seconds
        score = metric.format(metric.compute(labels, result.predictions, None), 2)
        agreement = f"{100 * _agreement(results[0], result):.2f}%"
        rows.append([result.engine, f"{megabytes:.0f}", f"{speed:.0f}", score, agreement])
    print("\n".join(aligned(rows, "right")))


def _agreement(reference: EngineResult, result: EngineResult) -> float:
    """Return the proportion of equal predictions.

    For a regression, return the proportion of the variance of the reference's predictions that the other predictions
    explain.
    """
    expected, predictions = reference.predictions, result.predictions
    if expected.dtype.kind == "f":
        return float(1 - np.square(predictions - expected).mean() / np.square(expected - expected.mean()).mean())
    return float((predictions == expected).reshape(len(expected), -1).all(axis=1).mean())


def main() -> None:
    arguments = options_parser().parse_args()
    with as_command():
        export_onnx(CLASSIFIER, TOKENIZED, arguments.onnx, arguments.int8)


if __name__ == "__main__":
    main()
