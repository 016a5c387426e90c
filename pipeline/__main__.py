"""List the stages and the commands."""

import sys

from pipeline.cli import PACKAGE, allow_closed_output, as_command
from pipeline.core.messages import UserError
from pipeline.core.yaml12 import read_yaml

NOT_COMMANDS = {"__init__", "__main__", "cli", "params"}


def listing() -> list[str]:
    """Return the lines that describe each stage, in the order of dvc.yaml, and each command, without importing them."""
    declared = read_yaml(PACKAGE.parent / "dvc.yaml")["stages"].values()
    stages = {stage["cmd"].rpartition("pipeline.")[2]: stage["desc"] for stage in declared}
    modules = [path for path in sorted(PACKAGE.glob("*.py")) if path.stem not in NOT_COMMANDS | stages.keys()]
    commands = {path.stem: path.read_text(encoding="utf-8").splitlines()[0].strip('".') for path in modules}
    return [
        'Stages, in order. "dvc repro" runs the ones that a change affects:',
        *(f"  {name:13} {description}" for name, description in stages.items()),
        "",
        "Commands:",
        *(f"  {name:13} {description}" for name, description in commands.items()),
        "",
        'Run one with "python -m pipeline.NAME". Add --help for options and examples.',
    ]


def main() -> None:
    allow_closed_output()
    with as_command():
        if sys.argv[1:] not in ([], ["-h"], ["--help"]):
            raise UserError(
                f'python -m pipeline takes no arguments, got "{" ".join(sys.argv[1:])}". Run a stage or a command with '
                "python -m pipeline.NAME."
            )
        print("\n".join(listing()))


if __name__ == "__main__":
    main()
