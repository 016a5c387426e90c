"""List the stages and the commands."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter

from pipeline.cli import PACKAGE, allow_closed_output, as_command
from pipeline.core.yaml12 import read_yaml

NOT_COMMANDS = {"__init__", "__main__", "cli", "params"}


def listing() -> list[str]:
    """Return the lines that describe each stage, in the order of dvc.yaml, and each command, without importing them."""
    declared = read_yaml(PACKAGE.parent / "dvc.yaml")["stages"].values()
    stages = {
        stage["cmd"].rpartition("pipeline.")[2]: stage.get("desc", "")
        for stage in declared
        if "pipeline." in stage.get("cmd", "")  # A stage that the user has added may run something else.
    }
    modules = [path for path in sorted(PACKAGE.glob("*.py")) if path.stem not in NOT_COMMANDS | stages.keys()]
    commands = {path.stem: path.read_text(encoding="utf-8").splitlines()[0].strip('".') for path in modules}
    return [
        'Stages, in order. "dvc repro" runs the ones that a change affects:',
        *(f"  {name:15} {description}" for name, description in stages.items()),
        "",
        "Commands:",
        *(f"  {name:15} {description}" for name, description in commands.items()),
        "",
        'Run one with "python -m pipeline.NAME". Add --help for options and examples.',
    ]


def main() -> None:
    allow_closed_output()
    with as_command():
        text = "\n".join(listing())
        parser = ArgumentParser("python -m pipeline", usage="python -m pipeline.NAME [options]", description=text)
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.parse_args()
        print(text)


if __name__ == "__main__":
    main()
