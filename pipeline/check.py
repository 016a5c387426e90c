"""Stage check: hold params.yaml and the installed packages to what the stages expect, before DVC removes an output."""

from pathlib import Path

from pipeline.cli import run
from pipeline.core.output import write_text
from pipeline.core.packages import require_locked
from pipeline.core.paths import CHECKED
from pipeline.modeling.device import usable_device
from pipeline.params import Params, load_params
from pipeline.sources.checkpoints import find
from pipeline.training.arguments import check_training

_HERE = "python -m"  # runtime.launcher, where this machine is the one that trains


def check(params: Params, out: Path) -> None:
    """Write `out`, whose content is always the same: what depends on it runs after this stage, and never because of it.

    Raises UserError for a value that a stage would refuse. What only the data or the weights can tell, such as a
    max_length that the model has no positions for, is left to the stages.
    """
    find(params.model.checkpoint)
    if params.runtime.launcher == _HERE:
        if params.train.precision != "fp32":  # which every device has
            usable_device(params.train.precision)
        check_training(params.train, params.runtime)
    write_text(out, "params.yaml holds what the stages accept.\n")


def main() -> None:
    require_locked()
    check(load_params(), CHECKED)


if __name__ == "__main__":
    run(main)
