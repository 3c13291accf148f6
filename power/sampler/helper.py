"""``python -m wattload.power.sampler.helper``: works in one run's folder, as the run's user.

A run's folder belongs to its user: its file system may hang, and its files may be traps. So the
sampler opens nothing there. This process does, without the sampler's rights, descriptors and
environment: it writes the samples, reads a replayed trace, and writes the record of a run that
could not do so. It takes one JSON object per line from the sampler, and answers those that ask
(``run_folder``). It ends when the sampler closes its end.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from wattload.core.errors import DataError, PowerError, WattloadError
from wattload.core.files import open_folder
from wattload.power.sampler.protocol import encode, refusal
from wattload.power.sampler.sample_writer import SampleFile, SampleLines

_FIRST_TO_DIE = "1000"
"""``proc(5)``: this process is killed before the sampler if memory runs out."""

Message = Mapping[str, Any]


class Helper:
    """The work in one run's folder, one message after the other."""

    def __init__(self) -> None:
        self._folder = Path()
        self._file: SampleFile | None = None
        self._lines = SampleLines()
        self._trace: Any = None

    def handle(self, message: Message) -> Message | None:
        """Do what a message says; return the answer."""
        handlers: Mapping[str, Callable[[Message], Message | None]] = {
            "enter": self._enter,
            "replay": self._replay,
            "start": self._start,
            "write": self._write,
            "close": self._close,
            "record": self._record,
        }
        return handlers[message["do"]](message)

    def _enter(self, message: Message) -> Message:
        become(message["uid"], message["gid"], message["groups"])
        self._folder = check_run_folder(
            Path(message["runs"]), message["run_id"], uid=message["owner"]
        )
        return {}

    def _replay(self, message: Message) -> Message:
        from wattload.power.config import PowerConfig, ReplayConfig
        from wattload.power.sources.base import PowerDevice
        from wattload.power.sources.replay import find
        from wattload.power.sources.replay_trace import unstage

        replay = message["replay"]
        config = PowerConfig(
            source="replay",
            period_s=message["period_s"],
            replay=None if replay is None else ReplayConfig(**replay),
        )
        devices = [PowerDevice(**each) for each in message["devices"]]
        (self._trace,) = find(devices, unstage(config, self._folder))
        self._trace.open()
        return {"facts": self._trace.facts().model_dump(mode="json")}

    def _start(self, message: Message) -> Message:
        descriptor = create_samples(self._folder / message["name"])
        self._file = SampleFile(
            descriptor,
            host=message["host"],
            period_s=message["period_s"],
            clock=message["clock"],
        )
        if self._trace is not None:
            self._trace.start()
        return {}

    def _write(self, message: Message) -> None:
        if self._file is None:
            raise PowerError("samples were written before the file was created")
        self._file.write(message["lines"])
        if self._trace is not None:
            self._file.write(self._lines.of(self._trace.read()))

    def _close(self, _: Message) -> Message:
        if self._file is None:
            return {"sample_count": 0, "lost_count": 0}
        self._file.close()
        return {"sample_count": self._file.sample_count, "lost_count": self._file.lost_count}

    def _record(self, message: Message) -> Message:
        from wattload.core.record.energy import PowerStateRecord
        from wattload.power.sampler.aborted_record import finish_aborted

        states = [PowerStateRecord.model_validate(each) for each in message["states"]]
        finish_aborted(self._folder, message["status"], message["reason"], states=states)
        return {}


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Give up this process's rights for a user's, for good; does nothing if it is the same user.

    Raises:
        PowerError: this process may not become that user.
    """
    if uid == os.geteuid():
        return
    load_code()
    try:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise PowerError(
            f"the sampler can't act for user {uid}; run it as root with CAP_SETUID and "
            "CAP_SETGID, or as that user"
        ) from error


def load_code() -> None:
    """Import what this process may need later: the user may not be able to read it."""
    from wattload.core.power import SourceFacts
    from wattload.core.record.energy import PowerStateRecord
    from wattload.core.record.run import RunRecord

    for name in (
        "wattload.power.sampler.aborted_record",
        "wattload.power.sources.replay",
        "pyarrow.compute",
        "pyarrow.csv",
        "pyarrow.parquet",
    ):
        import_module(name)
    for model in (PowerStateRecord, RunRecord, SourceFacts):
        model.model_rebuild()  # pydantic imports more of itself for its first models


def check_run_folder(runs: Path, run_id: str, *, uid: int | None) -> Path:
    """Return the folder of a run; with ``uid`` it must be that user's, unless ``uid`` is root.

    Raises:
        PowerError: the folder is missing, or belongs to another user.
    """
    folder = runs / run_id
    try:
        found = folder.lstat()
    except OSError as error:
        raise PowerError(
            f"run folder {folder} is not available ({error.strerror}); the sampler writes "
            f"nowhere else, so run with runs={runs}"
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise PowerError(f"{folder} is not a run folder; the sampler writes nowhere else")
    if uid not in (None, 0, found.st_uid):
        raise PowerError(
            f"the run folder {folder} belongs to user {found.st_uid}, not to user {uid} "
            "who announces the run"
        )
    return folder


def create_samples(path: Path) -> int:
    """Create a samples file and return its descriptor.

    Raises:
        PowerError: it exists already or can't be created.
    """
    try:
        with open_folder(path.parent) as folder:
            return folder.create(path.name, os.O_WRONLY | os.O_APPEND)
    except (OSError, DataError) as error:
        raise PowerError(f"the samples file {path} can't be created: {error}") from error


def serve(messages: BinaryIO, answers: BinaryIO) -> None:
    helper = Helper()
    for line in messages:
        message = json.loads(line)
        try:
            answer = helper.handle(message)
        except WattloadError as error:
            answer = refusal(error)
        except Exception as error:
            # Whatever a user's files contain, the sampler gets one answer to each question.
            answer = refusal(PowerError(f"{type(error).__name__}: {error}"))
        if "question" in message:
            answers.write(encode({"ok": True, **(answer or {}), "question": message["question"]}))
            answers.flush()


def main() -> None:
    """Serve the sampler that started this process; only that ends it, or its user."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_DIE, encoding="ascii")
    with suppress(BrokenPipeError):
        serve(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)


if __name__ == "__main__":
    main()
