"""The links, names, commands, pictures and style of README.md and docs/."""

import re
import runpy
from pathlib import Path

import pytest
from conftest import ROOT

from pipeline.params import Params, keys_of

README = ROOT / "README.md"
pytestmark = pytest.mark.skipif(
    not README.read_text().startswith("# dvc-trainer\n"), reason="the pages of another project"
)
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks/README.md"]
PIPELINE = ROOT / "pipeline"
COMMANDS = {path.stem for path in PIPELINE.glob("*.py")} - {"__init__", "__main__", "cli", "params"}


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the files and directories of this project that a page links to or shows, each with its anchor."""
    targets = re.findall(r"\]\(([^)]+)\)|src(?:set)?=\"([^\"]+)\"", page.read_text())
    parts = [
        (markdown or html).partition("#")
        for markdown, html in targets
        if not re.match(r"https?:|\.\./\.\./actions/", markdown or html)
    ]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in parts]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub creates for the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_on_a_page_resolves() -> None:
    for page in PAGES:
        for path, anchor in links(page):
            assert path.exists(), f"{page}: {path}"
            assert not anchor or anchor in anchors(path), f"{page}: {path}#{anchor}"


def test_every_page_is_reachable_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [README]
    while todo:
        if (page := todo.pop()) not in seen:
            seen.add(page)
            todo += [path for path, _ in links(page) if path.suffix == ".md"]
    assert set(PAGES) <= seen


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_keys_files_and_commands_on_a_page_exist(page: Path) -> None:
    text = page.read_text()
    keys = {key for section in Params.model_fields for key in keys_of(section)}
    mentioned = re.findall(rf"(?<![\w+./])((?:{'|'.join(Params.model_fields)})\.[a-z]\w*)", text)
    files = {"model.onnx", *(path.name for path in PIPELINE.glob("*.py"))}
    assert set(mentioned) - keys - files == set()
    assert {
        path for path in re.findall(r"`((?:pipeline|tests|docs)/[^`]*)`", text) if not (ROOT / path).exists()
    } == set()
    assert set(re.findall(r"python -m pipeline\.(\w+)", text)) <= COMMANDS
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) <= targets


def test_the_pictures_are_up_to_date() -> None:
    pictures = runpy.run_path(str(ROOT / "docs/pictures.py"))
    recorded = pictures["DIGEST"].read_text().strip()
    assert recorded == pictures["digest"](), "the code of the report has changed. Run dvc repro and make pictures."


# Phrases that a native speaker would not write, and what to write instead.
BANNED = {
    r"\d(?: |&nbsp;|\u00a0)%(?!\})": "95%, without a space",
    r"Raises? \w+ where": "Raises ... if",
    r"\b(?:is|are|was|were) no\b(?! longer)": "is not a, or what is missing",
    r"(?:\. |\()of (?:two|several|these|the)\b": "a phrase in its place in the sentence",
    r"\bbeside\b": "next to, or compared with",
    r"\banew\b": "again",
    r"\ball the same\b": "anyway",
    r"\bby hand\b": "manually, or the command",
    r"[,(|] ?of which\b": "a sentence of its own",
    r"\bat hand\b": "available",
    r"\bbut for\b": "except for",
    r"(?<!\")\brefus(?:e|es|ed|al|als)\b": "raise an error, or reject",
    r"\b(?:licence|labell(?:ed|ing)\b|grey\b|behaviour|organis|misspelt|colour|catalogue)": "it the American way",
    r"\bin brackets\b": "in parentheses",
    r"\bdrawn at random\b": "newly initialized",
    r"\b(?:the|a) share\b|\bshares of\b": "proportion",
    r"\bimitat": "emulate",
    r"\bfrom 0\.5 on\b": "at least 0.5",
}
PROSE = [
    *PAGES,
    *(ROOT / name for name in ("params.yaml", "dvc.yaml", "search.yaml", "Makefile", "pyproject.toml")),
    *sorted(PIPELINE.rglob("*.py")),
    *sorted(PIPELINE.rglob("*.jinja")),
]


@pytest.mark.parametrize("phrase", BANNED)
def test_the_prose_is_plain_english(phrase: str) -> None:
    matches = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in PROSE
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(phrase, line, re.IGNORECASE)
    ]
    assert not matches, f"write {BANNED[phrase]}:\n" + "\n".join(matches)


# The tests that run the commands on the pages. All other commands are marked as untested in their section.
TESTED = {
    r"\. \.venv/bin/activate|cp ~/my\.csv|dvc add|make (demo|verify)": "test_tutorial",
    r"make setup": "test_setup",
    r"make table": "test_workflow",
    r"make chaos": "test_chaos",
    r"make (test|lint)|\.venv/bin/python -m pytest": "test_workflow",  # CI runs them
    r"dvc (repro|metrics diff|exp run (-S|--queue|--run-all))": "test_pipeline",
    r"dvc (plots diff|exp remove|gc|remote|push|pull)|cp metrics/evaluation|rm -rf demo": "test_guides",
    r"(\$ |cat new\.jsonl \| )?python -m pipeline\.classify|\$ cat answered": "test_classify",
    r"(\$ )?python -m pipeline\.export|pip install .*onnx": "test_export",
    r"python -m pipeline\.compare": "test_compare",
    r"python -m webbrowser": "test_report",  # It opens the page in Chromium.
    r"python -m pipeline\.seeds": "test_seeds",
    r"python -m pipeline\.init": "test_init",
    r"(\$ )?python -m pipeline\.search": "test_search",
}
COMMAND = r"(\$ |!)?(make|dvc|python|cp|rm|pip|hf|curl|docker|cat|torchrun|~/mlflow|\.venv)\b|\. "


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_on_a_page_is_run_by_a_test_or_marked_as_untested(page: Path) -> None:
    assert all((ROOT / "tests" / f"{test}.py").exists() for test in TESTED.values())
    introduction, *sections = re.split(r"^## ", page.read_text(), flags=re.M)
    # A guide may say at its top that all of it is untested. README's top says it only of other versions of Python.
    general = "" if page == ROOT / "README.md" else introduction
    for section in [introduction, *sections]:
        for block in re.findall(r"^```\n(.*?)^```", section, re.M | re.S):
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                if re.match(COMMAND, line) and not any(re.match(pattern, line) for pattern in TESTED):
                    assert "untested" in (general + section).lower(), line
