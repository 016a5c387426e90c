"""List the stages and the commands."""

import ast
import re
import sys
from pathlib import Path

from pipeline.cli import as_command
from pipeline.core.messages import UserError
from pipeline.core.yaml12 import read_yaml

_HERE = Path(__file__).resolve().parent


def listing() -> list[str]:
    """Lines with the name and the first line of the docstring of each stage, in dvc.yaml's order, and each command.

    Every module at the top level of the package that has a function `main` is one of them; none is imported.
    """
    found = {}
    for path in sorted(_HERE.glob("[!_]*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in module.body):
            line = (ast.get_docstring(module) or "").partition("\n")[0]
            found[path.stem] = re.sub(r"^Stage [a-z]+: (.)", lambda start: start[1].upper(), line)
    declared = read_yaml(_HERE.parent / "dvc.yaml")["stages"].values()
    stages = [module for stage in declared if (module := stage["cmd"].rpartition(" pipeline.")[2]) in found]
    width = max(map(len, found))
    lines = ['Stages, in the order of dvc.yaml; "dvc repro" runs those that a change affects:']
    lines += [f"  {name:{width}}  {found[name]}" for name in stages]
    lines += ["", "Commands:"]
    lines += [f"  {name:{width}}  {line}" for name, line in found.items() if name not in stages]
    return [*lines, "", "python -m pipeline.NAME runs one; with --help it says more."]


def main() -> None:
    with as_command():
        if sys.argv[1:] not in ([], ["-h"], ["--help"]):
            given = " ".join(sys.argv[1:])
            raise UserError(f"python -m pipeline takes no arguments, not {given}; run python -m pipeline.NAME")
        print("\n".join(listing()))


if __name__ == "__main__":
    main()
