"""Write what docs/ says of params.yaml and dvc.yaml: `make docs`.

The comments of params.yaml become the tables of parameters.md, the stages of dvc.yaml the table and the graph of
pipeline.md. Each stands between `<!-- name -->` and `<!-- end -->`; the rest of a page is written by hand.
"""

import re
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parent


def parameters(params: str) -> str:
    """A table for each section: its keys, their values and their comments, which stand above a key or behind its value.

    params: the text of params.yaml. A comment above a section introduces it; one before an empty line is skipped.
    """
    lines = []
    comment: list[str] = []
    section = group = ""
    for line in params.splitlines():
        if above := re.fullmatch(r" *# (.*)", line):
            comment.append(above[1])
            continue
        if start := re.fullmatch(r"(\w+):", line):
            section = start[1]
            lines += ["", f"## `{section}`", ""]
            lines += [" ".join(comment), ""] if comment else []
            lines += ["| key | default | meaning |", "|---|---|---|"]
        elif key := re.fullmatch(r"  (  )?(\w+):(.*?)(?:\s# (.*))?", line):
            nested, name, value, behind = key.groups()
            group = f"{group.partition('.')[0]}.{name}" if nested else name
            meaning = " ".join([*comment, *([behind] if behind else [])])
            shown = "" if not nested and not value.strip() else f"`{value.strip() or 'null'}`"
            lines.append(_row(f"`{section}.{group}`", shown, meaning))
        comment = []
    return "\n".join(lines).strip()


def stages(pipeline: dict[str, Any]) -> str:
    """The table of stages. pipeline: the content of dvc.yaml."""
    lines = ["| stage | what it does | writes |", "|---|---|---|"]
    for name, stage in pipeline["stages"].items():
        lines.append(_row(f"`{name}`", stage["desc"], ", ".join(f"`{out}`" for out in _outs(stage))))
    return "\n".join(lines)


def graph(pipeline: dict[str, Any]) -> str:
    """The graph of stages, for Mermaid. pipeline: the content of dvc.yaml."""
    lines = ["```mermaid", "flowchart TD"]
    for name, stage in pipeline["stages"].items():
        deps = [Path(dep) for dep in stage["deps"]]
        for maker, of in pipeline["stages"].items():
            outs = [Path(out) for out in _outs(of)]
            if any(out in (dep, *dep.parents) for dep in deps for out in outs):
                lines.append(f"    {maker}-->{name}")
    return "\n".join([*lines, "```"])


def _outs(stage: dict[str, Any]) -> list[str]:
    entries = [entry for kind in ("outs", "metrics", "plots") for entry in stage.get(kind, [])]
    return [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def filled(page: str, name: str, content: str) -> str:
    """The page with `content` between the marks of `name`. Raises ValueError where they are not there once."""
    before, start, after = page.partition(f"<!-- {name} -->\n")
    _, end, rest = after.partition("<!-- end -->")
    if not end:
        raise ValueError(f"<!-- {name} --> and <!-- end --> are missing")
    return f"{before}{start}\n{content}\n\n{end}{rest}"


def pages(params: str, pipeline: str) -> dict[Path, str]:
    """The pages as they must be. params, pipeline: the text of params.yaml and dvc.yaml."""
    tree = yaml.safe_load(pipeline)
    of_parameters, of_pipeline = DOCS / "parameters.md", DOCS / "pipeline.md"
    text = filled(of_pipeline.read_text(encoding="utf-8"), "stages", stages(tree))
    return {
        of_parameters: filled(of_parameters.read_text(encoding="utf-8"), "parameters", parameters(params)),
        of_pipeline: filled(text, "graph", graph(tree)),
    }


def main() -> None:
    params, pipeline = ((DOCS.parent / name).read_text(encoding="utf-8") for name in ("params.yaml", "dvc.yaml"))
    for path, text in pages(params, pipeline).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
