"""A headless chromium, and the pages that are opened in it; written once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.browser.samples import SAMPLES, write_sample

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_MS = 120_000
"""How long a page may take for what should take no time: a busy machine fails no test."""

Scheme = Literal["light", "dark"]


@dataclass
class Opened:
    """An open page, and what the browser had to say while it was open."""

    page: Page
    file: Path
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def at_widths(self, *widths: int) -> Iterator[int]:
        """Yield each width once the page is on a screen of it; a page is laid out by CSS alone."""
        for width in widths:
            self.page.set_viewport_size({"width": width, "height": 900})
            yield width

    def refuse(self, dialog: Dialog) -> None:
        """Note a dialog and end it: the page would wait for its answer for ever."""
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


Opener = Callable[..., AbstractContextManager[Opened]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test in this folder as slow: each opens a browser's page."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


def find_chromium() -> str:
    """Return the browser's path, or skip the test."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    named = ", ".join(NAMES)
    pytest.skip(f"no page can be opened: there is none of {named} (apt-get install chromium)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a module's tests; each page has a profile of its own.

    Its processes, and the event loop that speaks to them in this thread, end with the module: tests
    of other folders count processes and start loops of their own.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = find_chromium()
    with sync_api.sync_playwright() as driver:
        # Sandboxes of their own need rights that root and containers lack; pages are our own.
        started = driver.chromium.launch(executable_path=path, chromium_sandbox=False)
        yield started
        started.close()


@pytest.fixture(scope="module")
def opener(browser: Browser) -> Opener:
    """Return what opens a page: without JavaScript, as its readers may, unless asked otherwise."""

    @contextmanager
    def opened(
        file: Path, *, width: int = 1360, scheme: Scheme = "light", scripts: bool = False
    ) -> Iterator[Opened]:
        with browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=scripts,
            reduced_motion="reduce",  # nothing is on its way to where a test looks for it
        ) as context:
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            found = Opened(page, file)
            page.on("request", lambda request: found.requests.append(request.url))
            page.on("console", lambda message: found.complaints.append(message.text))
            page.on("pageerror", lambda error: found.complaints.append(str(error)))
            page.on("dialog", found.refuse)
            page.goto(file.as_uri())
            yield found

    return opened


@pytest.fixture(params=sorted(SAMPLES))
def sample(request: pytest.FixtureRequest, samples: Callable[[str], Path]) -> Path:
    """Return each sample page in turn."""
    return samples(request.param)


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what writes a sample page once, by name."""
    folder = tmp_path_factory.mktemp("pages")

    def written(name: str) -> Path:
        file = folder / f"{name}.html"
        if not file.exists():
            write_sample(name, folder / name, file)
        return file

    return written
