"""Where a tracker keeps a run: stage train sends the training curve there, and stage report the scores.

Transformers' callbacks send the curve, and read from environment variables where to; one that the user has set wins.
Each run has a directory of its own in the user's repository, `runs/<experiment>-<key>`, also where DVC runs it in a
temporary copy. TensorBoard's files lie in it, and the id of the run in MLflow or wandb, which keep all runs beside it.
Other trackers keep their own defaults, and get no scores.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError, log
from pipeline.core.output import output_errors, write_text
from pipeline.core.paths import RUNS, users_path

_CURVE = "curve.sha256"  # in the directory of a finished run: checksum of its history.csv


def begin_run(tracker: str, key: str, resumed: bool) -> None:
    """Tell transformers' callback for `tracker` where to keep a run.

    key: of `run_key`. A resumed run goes on in its directory, renamed where DVC gave the experiment another name. Any
    other run starts in an empty one, and as a new run of MLflow or wandb. To be called on rank 0, before Trainer is
    made. Raises UserError where the tracker fails, or the directory cannot be written.
    """
    if tracker not in _BEGIN:
        return
    place = _place(key)
    with output_errors(place):
        if not resumed:
            shutil.rmtree(place, ignore_errors=True)
        elif not place.exists() and (earlier := _newest(place.parent.glob(f"*-{key[:_DIGITS]}"))):
            earlier.rename(place)
        place.mkdir(parents=True, exist_ok=True)
    try:
        run_id = _BEGIN[tracker](place)
    except Exception as error:  # of any kind, such as a server that does not answer
        raise UserError(
            f"params.yaml: runtime.report_to is {tracker}, which fails with {_line(error)}; correct that, or use none"
        ) from error
    write_text(_id_file(place, tracker), run_id)
    log.info("%s: run %s in %s", tracker, place.name, place.parent)


def end_run(tracker: str, key: str, history: Path) -> None:
    """Note of a run that its training curve is `history`, by which `log_scores` finds it."""
    if tracker in _BEGIN:
        write_text(_place(key) / _CURVE, _checksum(history))


def log_scores(tracker: str, history: Path, scores: dict[str, float], step: int) -> None:
    """Send the scores of a model to the tracker's run that has its training curve.

    history: that curve. scores: by name, as "test/f1". step: the last optimizer step. Where there is no
    such run, as when DVC restored the model from its cache, and where the tracker fails, a line of the log says so.
    """
    if tracker not in _SEND:
        return
    curves = _place("?" * _DIGITS)
    curve = _checksum(history)
    finished = [path for path in curves.parent.glob(f"{curves.name}/{_CURVE}") if path.read_text() == curve]
    place = _newest(path.parent for path in finished if _id_file(path.parent, tracker).exists())
    if place is None:
        log.info("%s gets no scores: no run %s in %s trained this model", tracker, curves.name, curves.parent)
        return
    try:
        _SEND[tracker](place, scores, step)
    except Exception as error:  # of any kind: a tracker must not cost the result
        log.warning("%s did not take the scores of run %s: %s", tracker, place.name, _line(error))


_DIGITS = 8  # of a key, in the name of a run


def _place(key: str) -> Path:
    """The directory of a run, named after DVC's experiment."""
    name = os.environ.get("DVC_EXP_NAME") or "workspace"
    return users_path(RUNS).absolute() / f"{name}-{key[:_DIGITS]}"


def _newest(places: Iterable[Path]) -> Path | None:
    return max(places, key=lambda place: place.stat().st_mtime, default=None)


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _id_file(place: Path, tracker: str) -> Path:
    return place / f"{tracker}.id"


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _tensorboard(place: Path) -> str:
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(place))
    return place.name


def _tensorboard_scores(place: Path, scores: dict[str, float], step: int) -> None:
    from torch.utils.tensorboard import SummaryWriter

    _tensorboard(place)
    with SummaryWriter(os.environ["TENSORBOARD_LOGGING_DIR"]) as writer:
        for name, score in scores.items():
            writer.add_scalar(name, score, step)


def _mlflow_run(place: Path) -> Any:
    """Start the run of a directory, or go on with it under the directory's present name. Returns a context manager."""
    import mlflow

    runs = place.parent
    if not os.environ.get("MLFLOW_TRACKING_URI"):
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{(runs / 'mlflow.db').as_posix()}"
        # MLflow's default experiment would keep artifacts in the working directory of the process that made the store.
        experiment = os.environ.setdefault("MLFLOW_EXPERIMENT_NAME", "pipeline")
        with suppress(mlflow.MlflowException):  # it exists
            mlflow.create_experiment(experiment, artifact_location=(runs / "mlartifacts").as_uri())
    known = _id_file(place, "mlflow")
    return mlflow.start_run(known.read_text(encoding="utf-8") if known.exists() else None, run_name=place.name)


def _mlflow(place: Path) -> str:
    with _mlflow_run(place) as run:
        run_id = str(run.info.run_id)
    os.environ["MLFLOW_RUN_ID"] = run_id  # after the run's end, which removes it; the callback goes on with the run
    return run_id


def _mlflow_scores(place: Path, scores: dict[str, float], step: int) -> None:
    import mlflow

    with _mlflow_run(place):
        mlflow.log_metrics(scores, step)


def _wandb(place: Path) -> str:
    known = _id_file(place, "wandb")
    run_id = known.read_text(encoding="utf-8") if known.exists() else secrets.token_hex(4)
    defaults = {"DIR": str(place.parent), "NAME": place.name, "RUN_ID": run_id, "RESUME": "allow"}
    for name, value in defaults.items():
        os.environ.setdefault(f"WANDB_{name}", value)
    return os.environ["WANDB_RUN_ID"]


def _wandb_scores(place: Path, scores: dict[str, float], step: int) -> None:
    import wandb

    _wandb(place)
    with wandb.init(project=os.environ.get("WANDB_PROJECT", "huggingface")) as run:  # as the callback
        run.log({**scores, "train/global_step": step})


_BEGIN: dict[str, Callable[[Path], str]] = {"mlflow": _mlflow, "tensorboard": _tensorboard, "wandb": _wandb}
_SEND: dict[str, Callable[[Path, dict[str, float], int], None]] = {
    "mlflow": _mlflow_scores,
    "tensorboard": _tensorboard_scores,
    "wandb": _wandb_scores,
}
