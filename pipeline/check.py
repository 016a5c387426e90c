"""Check params.yaml before DVC removes the outputs of other stages."""

from pipeline.cli import run_stage
from pipeline.core.output import write_text
from pipeline.core.paths import CHECKED
from pipeline.params import Params


def main(params: Params) -> None:
    """Write a file that never changes, so that the stages that depend on it run after this one, but not because of it.

    `run_stage` has checked the parameters.
    """
    write_text(CHECKED, "params.yaml holds what the stages accept.\n")


if __name__ == "__main__":
    run_stage("check", main)
