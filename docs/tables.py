"""Write the generated parts of docs/ from params.yaml and dvc.yaml: `make docs`.

The comments in params.yaml become the tables in parameters.md. The stages in dvc.yaml become the table and the graph in
pipeline.md. Each generated part is between `<!-- name -->` and `<!-- end -->`. The rest of a page is written by people.
"""

import math
import re
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parent


def parameters(params: str) -> str:
    """Return a table for each section, with its keys, their values and their comments.

    The comment of a key is above it or at the end of its line. A comment in one of these places of a section introduces
    its table. Comments before an empty line are skipped. A key below a list has its comment at the end of its line,
    because DVC drops a comment between the two.

    Args:
        params: The text of params.yaml.
    """
    lines = []
    comment: list[str] = []
    values = yaml.safe_load(params)
    section = group = ""
    for line in params.splitlines():
        if comment_line := re.fullmatch(r" *# (.*)", line):
            comment.append(comment_line[1])
            continue
        if section_line := re.fullmatch(r"(\w+):(?:  # (.*))?", line):
            section, trailing_comment = section_line.groups()
            comment += [f"{trailing_comment}."] if trailing_comment else []
            lines += ["", f"## `{section}`", ""]
            lines += [" ".join(comment), ""] if comment else []
            lines += ["| key | default | meaning |", "|---|---|---|"]
        elif key := re.fullmatch(r"  (  )?(\w+):.*?(?:\s# (.*))?", line):
            nested, name, trailing_comment = key.groups()
            if nested:
                path, value = f"{section}.{group}.{name}", values[section][group][name]
            else:
                path, value, group = f"{section}.{name}", values[section][name], name
            meaning = " ".join([*comment, *([trailing_comment] if trailing_comment else [])])
            default = "" if isinstance(value, dict) and value else f"`{_yaml(value)}`"
            lines.append(_row(f"`{path}`", default, meaning))
        comment = []
    return "\n".join(lines).strip()


def _yaml(value: Any) -> str:
    """Format a value in a single line."""
    return yaml.safe_dump(value, default_flow_style=True, width=math.inf).removesuffix("...\n").strip()


def stages(pipeline: dict[str, Any]) -> str:
    """Return the table of the stages in the content of dvc.yaml."""
    lines = ["| stage | what it does | writes |", "|---|---|---|"]
    for name, stage in pipeline["stages"].items():
        lines.append(_row(f"`{name}`", stage["desc"], ", ".join(f"`{out}`" for out in _outs(stage))))
    return "\n".join(lines)


def graph(pipeline: dict[str, Any]) -> str:
    """Return the graph of the stages in the content of dvc.yaml, for Mermaid."""
    lines = ["```mermaid", "flowchart TD"]
    for name, stage in pipeline["stages"].items():
        deps = [Path(dep) for dep in stage["deps"]]
        for producer, producing_stage in pipeline["stages"].items():
            outs = [Path(out) for out in _outs(producing_stage)]
            if any(out in (dep, *dep.parents) for dep in deps for out in outs):
                lines.append(f"    {producer}-->{name}")
    return "\n".join([*lines, "```"])


def _outs(stage: dict[str, Any]) -> list[str]:
    entries = [entry for kind in ("outs", "metrics", "plots") for entry in stage.get(kind, [])]
    return [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def filled(page: str, name: str, content: str) -> str:
    """Return the page with `content` between the marks of `name`. Raises ValueError if a mark is missing."""
    before, start, after = page.partition(f"<!-- {name} -->\n")
    _, end, rest = after.partition("<!-- end -->")
    if not end:
        raise ValueError(f"<!-- {name} --> and <!-- end --> are missing")
    return f"{before}{start}\n{content}\n\n{end}{rest}"


def pages(params: str, pipeline: str) -> dict[Path, str]:
    """Return the up-to-date text of each page with generated parts.

    Args:
        params: The text of params.yaml.
        pipeline: The text of dvc.yaml.
    """
    tree = yaml.safe_load(pipeline)
    parameters_page, pipeline_page = DOCS / "parameters.md", DOCS / "pipeline.md"
    text = filled(pipeline_page.read_text(encoding="utf-8"), "stages", stages(tree))
    return {
        parameters_page: filled(parameters_page.read_text(encoding="utf-8"), "parameters", parameters(params)),
        pipeline_page: filled(text, "graph", graph(tree)),
    }


def main() -> None:
    params, pipeline = ((DOCS.parent / name).read_text(encoding="utf-8") for name in ("params.yaml", "dvc.yaml"))
    for path, text in pages(params, pipeline).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
