"""Export the trained model to ONNX, and show that it still answers the same.

The fp32 file is written only if its logits are those of torch to 1e-4, on the split on which verdicts rest. With
--int8, a file with quantized weights is written beside it. If it may lose half a point or more there, by the 95%
interval of the difference, the command fails and writes nothing. The table has size, speed on the same threads,
and how many answers agree. Needs the packages of the extra "onnx".
"""

import importlib.util
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.cli import as_command, command_parser
from pipeline.core.columns import aligned
from pipeline.core.messages import UserError, log
from pipeline.core.output import atomic_output
from pipeline.core.paths import CLASSIFIER, SETTINGS, TOKENIZED
from pipeline.core.task import Task, read_task
from pipeline.modeling.settings import read_settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FP32, _INT8 = "model.onnx", "model_int8.onnx"
_TOLERANCE = 1e-4  # of a logit in fp32
_MARGIN = 0.5  # points, or units of an error, by which int8 may be worse


class Scored(NamedTuple):
    """What an engine gives for the rows. bytes: of its file."""

    engine: str
    bytes: int
    logits: "NDArray[np.float64]"
    seconds: float


def export_onnx(classifier: Path, tokenized: Path, out: Path, int8: bool) -> None:
    """Write a directory with model.onnx, with `int8` also model_int8.onnx, and the tokenizer, and print the table.

    Raises UserError where a file does not answer as the model does, and writes nothing then.
    """
    import torch

    from pipeline.core.tables import open_arrow, to_numpy
    from pipeline.modeling.device import usable_device
    from pipeline.modeling.inference import logits
    from pipeline.modeling.loading import load_classifier, load_tokenizer
    from pipeline.serving import onnx_model

    task, settings = read_task(tokenized, "tokenize"), read_settings(classifier)
    require_free(out, classifier)
    split = task.verdict_split
    rows = open_arrow(tokenized, split, "tokenize")
    tokenizer, model = load_tokenizer(classifier), load_classifier(classifier, "cpu", trained=True)
    names = list(tokenizer.model_input_names)

    def score(engine: str, file: Path, scorer: Any, precision: Any = "fp32") -> Scored:
        began = time.monotonic()
        found = logits(scorer, rows, tokenizer, 1, precision, desc=engine)
        size = sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))
        return Scored(engine, size, found.astype("float64"), time.monotonic() - began)

    with atomic_output(out) as draft:
        draft.mkdir()
        copy_settings(classifier, draft)
        file = draft / _FP32
        onnx_model.export(model, names, settings.max_length, file)
        weights = classifier / "model.safetensors"
        scored = [score("torch fp32", weights, model)]
        if usable_device("auto") == ("cpu", "bf16"):  # else this CPU would emulate it
            scored.append(score("torch bf16", weights, model, "bf16"))
        scored.append(score("ONNX fp32", file, onnx_model.OnnxModel(file)))
        error = float(abs(scored[-1].logits - scored[0].logits).max())
        if not error <= _TOLERANCE:  # NaN, too
            raise UserError(f"the logits of the ONNX model differ by up to {error:.2g} from torch's; it is not written")
        log.info("the logits differ by at most %.2g from torch's", error)
        if int8:
            quantized = draft / _INT8
            onnx_model.quantize(file, quantized)
            scored.append(score("ONNX int8", quantized, onnx_model.OnnxModel(quantized)))
        print("\n".join(_table(task, scored, to_numpy(rows["labels"]))))
        print(f"{len(rows)} {split} {task.noun}, {torch.get_num_threads()} threads. Agreement: with torch fp32.")
        if int8:
            _require_equivalence(task, to_numpy(rows["labels"]), scored[0], scored[-1])
    log.info("wrote %s", out)


def copy_settings(classifier: Path, out: Path) -> None:
    """Copy the files of a model but its weights. The copies can be written and removed even if the model cannot."""
    for file in _settings_files(classifier):
        shutil.copyfile(file, out / file.name)


def _settings_files(classifier: Path) -> list[Path]:
    return [file for file in classifier.iterdir() if file.is_file() and file.suffix != ".safetensors"]


def require_free(out: Path, classifier: Path) -> None:
    """Raise UserError if `out` is in the model's directory, or has a file that this export would not write again."""
    if out.resolve().is_relative_to(classifier.resolve()):
        raise UserError(f"{out} is in {classifier}, which is the model's own, and DVC's; name another directory")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; name a directory")
    if not out.exists():
        return
    ours = (out / _FP32).is_file() and (out / SETTINGS).is_file()
    written = {file.name for file in _settings_files(classifier)} | {_FP32, f"{_FP32}.data", _INT8}  # .data: above 2 GB
    foreign = [file.name for file in sorted(out.iterdir()) if not (ours and file.is_file() and file.name in written)]
    if foreign:
        raise UserError(
            f"{out} has {foreign[0]}, which this export would not write; remove it, or name another directory"
        )


def _table(task: Task, scored: list[Scored], labels: Any) -> list[str]:
    from pipeline.evaluation.metrics import METRICS, answers, predicted

    reference = predicted(task.problem_type, scored[0].logits)
    metric = METRICS[task.metrics[0]]
    rows = [["", "MB", f"{task.noun} a second", metric.title, "agreement"]]
    for of in scored:
        values = predicted(task.problem_type, of.logits)
        same = (values == reference).reshape(len(values), -1).all(axis=1)
        agreement = "" if task.problem_type == "regression" else f"{100 * same.mean():.2f} %"
        score = metric.format(metric.compute(labels, *answers(task.problem_type, of.logits)), 2)
        rows.append([of.engine, f"{of.bytes / 1e6:.0f}", f"{len(values) / of.seconds:.0f}", score, agreement])
    return aligned(rows, "right")


def _require_equivalence(task: Task, labels: Any, reference: Scored, quantized: Scored) -> None:
    from pipeline.evaluation.metrics import METRICS, answers
    from pipeline.evaluation.uncertainty import difference, jackknife

    name, metric = task.metrics[0], METRICS[task.metrics[0]]
    before, after = (
        jackknife(name, labels, *answers(task.problem_type, scored.logits))[None] for scored in (reference, quantized)
    )
    gain = difference(metric.sign * before, metric.sign * after, same_seeds=True)
    unit = "" if metric.scale == "error" else " points"
    if gain.low <= -(_MARGIN if metric.scale == "error" else _MARGIN / 100):
        raise UserError(
            f"int8 may lose {_MARGIN}{unit} of {name} or more: the 95% interval of the difference is "
            f"{metric.format_difference(gain.low, 2)} to {metric.format_difference(gain.high, 2)}{unit}. "
            "Nothing is written: export without --int8."
        )
    log.info("int8 loses less than %s%s of %s", _MARGIN, unit, name)


def main() -> None:
    parser = command_parser("export", __doc__)
    parser.add_argument("--onnx", metavar="DIR", type=Path, required=True, help="the directory to write")
    parser.add_argument("--int8", action="store_true", help="also with int8 weights; fails where they are not as good")
    arguments = parser.parse_args()
    with as_command():
        if lacking := [name for name in ("onnx", "onnxruntime", "onnxscript") if not importlib.util.find_spec(name)]:
            raise UserError(f"{lacking[0]} is not installed; pip install -c requirements.lock -e '.[onnx]'")
        export_onnx(CLASSIFIER, TOKENIZED, arguments.onnx, arguments.int8)


if __name__ == "__main__":
    main()
