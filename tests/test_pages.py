"""The links, keys, files and commands of README.md and docs/."""

import re
from pathlib import Path

import pytest
from conftest import ROOT, keys_of

from pipeline.params import Params

README = ROOT / "README.md"
pytestmark = pytest.mark.skipif(
    not README.read_text().startswith("# dvc-trainer\n"), reason="the pages of another project"
)
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks/README.md"]
PIPELINE = ROOT / "pipeline"
COMMANDS = {path.stem for path in PIPELINE.glob("*.py")} - {"__init__", "cli", "params"}


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


def test_another_page_links_to_every_page() -> None:
    assert {*PAGES} - {README} <= {path for page in PAGES for path, _ in links(page) if path != page}


def test_every_time_on_a_page_stands_in_costs() -> None:
    texts = {page: " ".join(page.read_text().split()) for page in [README, *(ROOT / "docs").glob("*.md")]}
    times = re.compile(r"(?:[\w.]+ to )?[\w.]+ (?:minutes|hours?)\b")
    measured = set(times.findall(texts[ROOT / "docs/costs.md"]))
    for page, text in texts.items():
        assert set(times.findall(text)) <= measured, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_keys_files_and_commands_on_a_page_exist(page: Path) -> None:
    # Blocks of Python and YAML may be the reader's own code.
    text = re.sub(r"```(?:python|yaml)\n.*?```", "", page.read_text(), flags=re.DOTALL)
    mentioned = re.findall(rf"(?<![\w+./])((?:{'|'.join(Params.model_fields)})\.[a-z]\w*)", text)
    files = {"model.onnx", "model.safetensors", *(path.name for path in [*PIPELINE.glob("*.py"), *PAGES])}
    assert set(mentioned) <= keys_of(*Params.model_fields) | files
    for path in re.findall(r"`((?:pipeline|tests|docs)/[^`]*)`", text):
        assert (ROOT / path).exists(), path
    assert set(re.findall(r"python -m pipeline\.(\w+)", text)) <= COMMANDS
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) <= targets
