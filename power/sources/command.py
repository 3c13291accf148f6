"""Any program that prints watts, such as the tool of a meter, or ssh to a host that has a meter."""

from __future__ import annotations

import logging
import math
import os
import re
import secrets
import shutil
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Thread
from typing import IO

from wattload.core.clock import ClockAnchor, anchor
from wattload.core.errors import PowerDataLostError, PowerError
from wattload.core.launch import with_this_process
from wattload.core.power import Channel, Evidence, Sample, Scope, SourceFacts
from wattload.core.processes import end_marked
from wattload.core.settings import shown
from wattload.core.units import KIB, NS_PER_S
from wattload.power.config import CommandConfig, PowerConfig
from wattload.power.registry import Meter
from wattload.power.sources.base import LARGEST_W, PassiveSource, PowerDevice, placed_at

METER = Meter(
    scope=Scope.NODE,
    is_companion=True,
    settings="power.command.run='ssh server wattload power watch nvme0 --csv'",
    measures="power by any program that prints watts",
)
FIRST_S, GRACE_S = 15.0, 2.0  # for each of the first lines; to release a meter before the end
FIRST_READS, SILENT_PERIODS = 3, 3
TRUSTED_NS = NS_PER_S // 2  # the largest difference from their arrivals of times that are used
MOST_PER_S, MOST_WAITING, MOST_BYTES = 1000, 10_000, 64 * KIB
"""Readings of a program; of those that come faster, how many at once; bytes of it in memory."""
JITTER_NS = NS_PER_S // 1000  # of the two clocks' difference
BURST_LINES, BURST_NS, BURSTS = 5, TRUSTED_NS // 10, 3
"""So many lines within so short a time, between silences of ``TRUSTED_NS``, and so many times in a
row, come from a buffer. A busy host reads some lines late too, but then the next ones in time."""
MARK = "WATTLOAD_METER"
_UNIX_S = 1e9, 1e10  # 2001 to 2286: neither milliseconds nor a decimal comma
_VARIABLE = re.compile(r"\$(\$|[A-Za-z_][A-Za-z0-9_]*)")
_FORM = "`unix_seconds watts` or `watts`"
_BUFFERED = (
    "a program that buffers what it writes to a pipe needs stdbuf -oL or --line-buffered; if that "
    "is there already, flush inside the program (Python: flush=True, awk: fflush())"
)
_LOG = logging.getLogger(__name__)


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[CommandSource]:
    """Return the source; raises ``ConfigError`` without a program, or if its drive is not clear."""
    own = config.command
    own.check()
    program = own.arguments[0].rpartition("/")[2]
    place = placed_at(devices, own, setting="power.command.device", otherwise=program)
    return [CommandSource(own, *place, config.period_s)]


class CommandSource(PassiveSource):
    """A program that runs from ``open`` to ``close``, with two threads that read what it prints."""

    def __init__(self, config: CommandConfig, key: str, name: str, period_s: float) -> None:
        accuracy = config.accuracy.stated
        stated = {"scope": config.scope, "accuracy": accuracy}
        missing = " and ".join(f"power.command.{each}" for each in stated if not stated[each])
        self._config, self._period_s = config, period_s
        self._basis = f"; declared, without {missing}" if missing else ""
        self._process: Popen[bytes] | None = None
        super().__init__(
            SourceFacts(
                name="command",
                device=key,
                device_name=name,
                scope=Scope(config.scope or Scope.NODE),
                evidence=Evidence.DECLARED if missing else Evidence.MEASURED,
                # declared_sensor takes a declared delay to be uncertain by all of it (k = 2).
                sensor=config.sensor,
                period_s=period_s,
                accuracy=accuracy,
                range_w=config.range_w,
                meter="" if missing else config.run,
            )
        )

    def open(self) -> None:
        """Start the program and judge its first lines; raises ``PowerError`` with what is wrong."""
        self._lines = deque[tuple[ClockAnchor, str]](maxlen=10 * MOST_WAITING)
        self._loss, self._errors = "", b""
        self._columns = self._bursts = self._group_count = self._group_ns = 0
        self._last_ns = self._start_ns = self._spread_ns = self._time_ns = 0
        self._uses_times = self._was_faulty = self._is_burst = False
        self._launch(self._config.arguments)
        try:
            self._judge()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        self._lines.clear()
        self._start_ns = time.monotonic_ns()

    def read(self) -> Sequence[Sample]:
        """Return the readings since the last call; ``PowerDataLostError`` follows the last ones."""
        loss, now_ns = self._loss, time.monotonic_ns()
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if loss and not lines:
            self._loss = ""
            raise PowerDataLostError(loss)
        samples = [each for line in lines for each in self._samples_of(*line)]
        silent_ns = SILENT_PERIODS * self._facts.period_s * NS_PER_S
        if not lines and not self._uses_times and now_ns - self._last_ns > silent_ns:
            samples.append(self._sample(Channel.POWER_W, None, now_ns))
        return [each for each in samples if each.time_ns >= self._start_ns]

    def close(self) -> None:
        """End the program and all that it has started; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait()
            end_marked(self._mark)  # what a killed launcher has left
            for thread in self._threads:
                thread.join(GRACE_S)

    def _launch(self, words: Sequence[str]) -> None:
        names = set(_VARIABLE.findall(" ".join(words))) - {"$"}
        for name in names:
            if name not in os.environ:
                raise PowerError(
                    f"power.command.run has ${name}, which is not set; export {name}='...', or "
                    f"write $${name} for a dollar sign"
                )
        self._secrets = {f"${name}": os.environ[name] for name in names}
        values = {"$$": "$", **self._secrets}
        program, *rest = (_VARIABLE.sub(lambda at: values[at[0]], each) for each in words)
        path = shutil.which(program)
        if path is None:
            advice = f"chmod +x {words[0]}" if Path(program).is_file() else "give its full path"
            raise PowerError(self._says(f"is not an executable program; {advice}"))
        # The sampler's path of modules is not for a program that may run another Python.
        self._mark = f"{MARK}={secrets.token_hex(8)}"
        changes = ["-u", "PYTHONPATH", "PYTHONUNBUFFERED=1", self._mark]
        command = ["/usr/bin/env", *changes, path, *rest]
        command = with_this_process(command, grace_s=GRACE_S)
        self._begun_ns = time.monotonic_ns()
        process = Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True)
        errors = Thread(target=self._read_errors, args=[process.stderr], daemon=True)
        lines = Thread(target=self._read_lines, args=[process.stdout, process, errors], daemon=True)
        self._process, self._threads = process, (errors, lines)
        for thread in self._threads:
            thread.start()

    def _read_lines(self, stream: IO[bytes], process: Popen[bytes], errors: Thread) -> None:
        loss, pending, excess, excess_ns = "", b"", 0.0, time.monotonic_ns()
        with stream:
            while not loss and (chunk := os.read(stream.fileno(), MOST_BYTES)):
                now = anchor()
                *whole, pending = (pending[-MOST_BYTES:] + chunk).split(b"\n")
                texts = [each.decode("utf-8", "replace").strip() for each in whole]
                lines = [(now, each) for each in texts if each and not each.startswith("#")]
                if lines and now.monotonic_ns - self._last_ns > TRUSTED_NS:
                    was_burst, self._is_burst = self._is_burst, False
                    self._bursts = self._bursts + 1 if was_burst else 0
                    self._group_count, self._group_ns = 0, now.monotonic_ns
                    if self._bursts >= BURSTS and not self._uses_times:
                        loss = self._says(f"prints its lines in bursts; {_BUFFERED}")
                self._group_count += len(lines)
                self._last_ns = now.monotonic_ns if lines else self._last_ns
                since_ns = self._last_ns - self._group_ns
                self._is_burst = self._group_count >= BURST_LINES and since_ns < BURST_NS
                expected = MOST_PER_S * (now.monotonic_ns - excess_ns) / NS_PER_S
                excess, excess_ns = max(0.0, excess - expected) + len(whole), now.monotonic_ns
                if excess > MOST_WAITING:  # late lines may come at once
                    loss = self._says(
                        f"prints more than {MOST_PER_S:,} readings per second; print at most "
                        "one each millisecond, such as the mean of several"
                    )
                    lines = []
                self._lines.extend(lines)
        if loss:
            self._loss = loss
            return
        seconds, how = (time.monotonic_ns() - self._begun_ns) / NS_PER_S, "closed its output"
        with suppress(TimeoutExpired):
            how = f"exited with status {process.wait(2 * GRACE_S)}"
            errors.join(GRACE_S)
        words = " ".join(self._masked(self._errors.decode("utf-8", "replace")).split())[-400:]
        words = f"; its last words: {words}" if words else ""
        self._loss = self._says(f"{how} after {seconds:.3g} s{words}")

    def _read_errors(self, stream: IO[bytes]) -> None:
        with stream:
            is_rest, left = False, 16 * MOST_BYTES
            while line := stream.readline(4 * KIB):
                self._errors = (self._errors + line)[-MOST_BYTES:]
                # A part of a line may have a part of a secret, which would not be masked.
                if not is_rest and len(line) < 4 * KIB and left > 0:
                    left -= len(line)
                    _LOG.info(
                        "power.command: %s", self._masked(line.decode("utf-8", "replace").strip())
                    )
                is_rest = not line.endswith(b"\n")

    def _judge(self) -> None:
        """Decide by the first lines which times are used, and how often readings come."""
        reads_ns, late_ns, own_s, has_times = set[int](), list[int](), 0.0, False
        while len(reads_ns) < FIRST_READS or self._is_burst:
            if self._loss and not self._lines:
                raise PowerError(self._loss)
            if self._bursts and self._is_burst:
                raise PowerError(self._says(f"prints its lines in bursts; {_BUFFERED}"))
            if time.monotonic_ns() - max(self._begun_ns, self._last_ns) > FIRST_S * NS_PER_S:
                raise PowerError(self._says(f"printed nothing in {FIRST_S:.0f} s; {_BUFFERED}"))
            time.sleep(0.02)
            while self._lines:
                now, line = self._lines.popleft()
                before_s, (own_s, _) = own_s, self._reading(line)
                if own_s < before_s:
                    raise self._fault(line, "its time must not be before that of the line before")
                has_times = self._columns > 1
                reads_ns.add(now.monotonic_ns)
                late_ns.append(now.realtime_ns - round(own_s * NS_PER_S) if has_times else 0)
        between_ns = (max(reads_ns) - min(reads_ns)) // (len(reads_ns) - 1)
        worst_ns, is_stated = max(map(abs, late_ns)), self._config.lag_s is not None
        self._uses_times = has_times and worst_ns <= TRUSTED_NS
        # How much the delay varies is seen if lines have times; lag_s states the rest.
        varies_ns = max(late_ns) - min(late_ns)
        self._spread_ns = varies_ns if is_stated else max(*late_ns, TRUSTED_NS, between_ns)
        times = "its own times" if self._uses_times else "stamped on arrival"
        if has_times and not self._uses_times:
            times += f": its times differ by {worst_ns / NS_PER_S:.1f} s (clock or delay)"
        elif not self._uses_times and not is_stated:
            times += f", up to {self._spread_ns / NS_PER_S:.2g} s late"
        period_s = max(self._period_s, round(between_ns / NS_PER_S, 2))
        detail = f"`{self._config.run}`, {times}{self._basis}"
        self._facts = self._facts.model_copy(update={"period_s": period_s, "detail": detail})

    def _reading(self, line: str) -> tuple[float, float]:
        """Return the time in a line (UTC in seconds) and its watts; raises ``PowerError``."""
        numbers: list[float] = []
        with suppress(ValueError):
            numbers = [float(word) for word in line.replace(",", " ").split()]
        self._columns = self._columns or len(numbers)
        if len(numbers) != self._columns or len(numbers) not in (1, 2):
            form = f"each line must be {_FORM} as the first one is; put # before a header"
            raise self._fault(line, form)
        *_, own_s, watts = [_UNIX_S[0], *numbers]
        scope, most_w = self._facts.scope, LARGEST_W[self._facts.scope]
        if not _UNIX_S[0] <= own_s < _UNIX_S[1]:
            raise self._fault(line, "times must be seconds since 1970 (UTC)")
        if not math.isfinite(watts):
            raise self._fault(line, "that is no reading; is the meter connected?")
        if watts < 0:
            reverse = "power must not be negative; is the meter connected in reverse?"
            raise self._fault(line, reverse)
        if watts > most_w:
            unit = f"a {scope} draws {most_w:g} W at most; print watts, not milliwatts"
            raise self._fault(line, unit)
        return own_s, watts

    def _samples_of(self, now: ClockAnchor, line: str) -> Sequence[Sample]:
        """Return the reading in a line; without one, nothing if the lines' own times are used.

        A line may come after later times, so that the arrival is no place for a missing reading.
        """
        time_ns, spread_ns = now.monotonic_ns, self._spread_ns
        try:
            own_s, watts = self._reading(line)
            if self._uses_times:
                late_ns = now.realtime_ns - round(own_s * NS_PER_S)
                time_ns -= max(late_ns, 0)  # no reading is later than its arrival
                spread_ns = abs(late_ns)
                if spread_ns > TRUSTED_NS or time_ns < self._time_ns - JITTER_NS:
                    raise self._fault(
                        line,
                        f"its time is {late_ns / NS_PER_S:.3g} s before its arrival; it must not "
                        f"run back, nor differ by more than {TRUSTED_NS / NS_PER_S:g} s",
                    )
                time_ns = self._time_ns = max(time_ns, self._time_ns)
        except PowerError as error:
            if not self._was_faulty:
                _LOG.warning("%s", error)
            self._was_faulty = True
            return () if self._uses_times else (self._sample(Channel.POWER_W, None, time_ns),)
        return (self._sample(Channel.POWER_W, watts, time_ns, spread_ns),)

    def _fault(self, line: str, fault: str) -> PowerError:
        return PowerError(self._says(f"printed {shown(self._masked(line))}: {fault}"))

    def _says(self, what: str) -> str:
        return self._masked(f"power.command: `{self._config.arguments[0]}` {what}")

    def _masked(self, text: str) -> str:
        """Return a text with the names of the variables instead of their values."""
        for name, value in sorted(self._secrets.items(), key=lambda each: -len(each[1])):
            text = text.replace(value, name) if value else text
        return text
