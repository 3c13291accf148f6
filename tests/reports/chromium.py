"""A headless Chromium on a pipe: pages opened without JavaScript, their requests written down."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
)
READ_FD, WRITE_FD = 3, 4
"""``--remote-debugging-pipe``: the browser reads commands on 3 and writes answers on 4."""


def find_chromium() -> str:
    """Return the browser's path, or skip the test."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip(f"none of {', '.join(NAMES)} is installed, so no page can be opened")


class Browser:
    """One page in a Chromium, spoken to in the DevTools protocol."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = os.fdopen(answers, "rb")
        self._pending = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send one command and return its result; events on the way are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            part = self._answers.read1(1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\0")
        return dict(json.loads(line))

    def open(self, page: Path, *, width: int = 1360, dark: bool = False) -> None:
        """Open a file without JavaScript and wait until it has loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Emulation.setScriptExecutionDisabled", value=True)
        scheme = "dark" if dark else "light"
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        """Write what the page looks like, from top to end unless ``whole`` is false."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(picture["data"]))

    def print(self, file: Path) -> None:
        """Write the page as it prints, on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": False}
        document = self.call("Page.printToPDF", preferCSSPageSize=True, **paper)
        file.write_bytes(base64.b64decode(document["data"]))

    def requests(self) -> list[str]:
        """Return the URL of every request since the page was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Return what the browser logged: refusals by the content security policy, errors."""
        return [
            event["params"]["entry"]["text"]
            for event in self.events
            if event.get("method") == "Log.entryAdded"
        ]

    def close(self) -> None:
        """End the browser, wait until it has closed its end, and give the pipe back."""
        self._session = None
        self.call("Browser.close")
        while self._answers.read1(1 << 16):
            pass
        self._answers.close()
        os.close(self._commands)

    def value(self, expression: str) -> Any:  # noqa: ANN401 - whatever the page answers
        """Return a JavaScript expression's value, asked from outside the page."""
        self.call("Emulation.setScriptExecutionDisabled", value=False)
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        self.call("Emulation.setScriptExecutionDisabled", value=True)
        return result["result"].get("value")


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start a browser with its own profile folder, and end it and its helpers after use."""
    browser_reads, we_write = _high(os.pipe())
    we_read, browser_writes = _high(os.pipe())
    path = find_chromium()
    process = os.posix_spawn(
        path,
        [path, *FLAGS, f"--user-data-dir={profile}"],
        os.environ,
        setpgroup=0,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, browser_reads, READ_FD),
            (os.POSIX_SPAWN_DUP2, browser_writes, WRITE_FD),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
    )
    os.close(browser_reads)
    os.close(browser_writes)
    browser = Browser(we_write, we_read)
    try:
        yield browser
    finally:
        browser.close()
        os.waitpid(process, 0)


def _high(ends: tuple[int, int]) -> tuple[int, int]:
    """Move a pipe's ends above the descriptors that the browser expects; closed on exec."""
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
