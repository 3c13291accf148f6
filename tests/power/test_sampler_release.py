"""The end of a run in the sampler: every step is tried, whatever breaks in another."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from wattload.core.errors import PowerError
from wattload.power.journal import Journal
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.peer import Peer
from wattload.power.sampler.recording import Recording


class Step:
    """A drive, a source or a file: notes what is asked of it, and breaks where it is told to."""

    def __init__(
        self, name: str, done: list[str], error: Exception, breaks: Collection[str] = ()
    ) -> None:
        self._name = name
        self._done = done
        self._error = error
        self._breaks = breaks

    def restore(self) -> None:
        self._do("restore")

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str) -> None:
        self._done.append(f"{what} {self._name}")
        if what in self._breaks:
            raise self._error


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a bug"), PowerError("it hangs"), OSError("it is gone")]
)
def test_what_breaks_in_one_step_keeps_no_other_from_being_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    (tmp_path / "run-1").mkdir()
    host = SamplerHost(runs=tmp_path, journal=Journal(tmp_path / "state"))
    recording: Any = Recording(host, Peer(os.getpid(), os.geteuid(), os.getegid()), "run-1")
    done: list[str] = []
    both = ("restore", "close")
    recording._drives = [Step("drive", done, error, both)]
    recording._sources = [Step("25h", done, error, both), Step("meter", done, error)]
    recording._counters = [Step("counter", done, error, both)]
    recording._file = Step("file", done, error)
    recording.end()
    recording.end()
    assert done == [
        "restore drive",
        "restore 25h",
        "restore meter",
        "close drive",
        "close 25h",
        "close meter",
        "close counter",
        "close file",
    ]
    assert caplog.text.count(str(error)) >= 5
