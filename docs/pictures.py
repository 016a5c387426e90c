"""Take the pictures of the docs again: `make pictures`, after a `dvc repro`. It needs Chromium.

The report's first screen comes from metrics/report.html, in the light and the dark theme. The terminal picture comes
from a run of `make demo`.
"""

import html
import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REPORT = ROOT / "metrics/report.html"
_WIDTH, _HEIGHT = 1200, 900
_DEMO_LINES = r"^(> |training on|epoch|test \(|Open ).*"
_TERMINAL = """<body style="margin:0; background:#1e1e1e"><pre style="margin:0; padding:24px; font:15px/1.5 monospace;
 color:#e4e4e4; width:952px; white-space:pre-wrap">{}</pre></body>"""


def terminal() -> str:
    """Return the most telling lines that `make demo` prints, as a page."""
    done = subprocess.run(["make", "demo"], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(done.stdout)
    lines = [match[0] for match in re.finditer(_DEMO_LINES, done.stdout, re.M)]
    return _TERMINAL.format(html.escape("\n".join(["$ make demo", *lines])))


def take(browser: Browser) -> None:
    for name, theme in (("report.png", "light"), ("report_dark.png", "dark")):
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme=theme)
        page.goto(REPORT.as_uri())
        page.wait_for_selector("svg")
        page.screenshot(path=DOCS / name)
    page = browser.new_page(viewport={"width": 1000, "height": 100})
    page.set_content(terminal())
    page.screenshot(path=DOCS / "terminal.png", full_page=True)


def main() -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not chromium:
        sys.exit("error: Chromium is missing; install it, for example with: apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take(browser)
        browser.close()


if __name__ == "__main__":
    main()
