"""What every outside program that owns the loop does alike: stretches, bytes, raw output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from wattload.core.io import Harness, HarnessResult


@dataclass
class Watch:
    """Remembers what a harness tells, and who else is there when it does."""

    told: list[str] = field(default_factory=list)
    moved_bytes: dict[int, int] = field(default_factory=dict)
    _stretch: int = -1

    def before(self, stretch: int) -> None:
        self.told.append(f"before {stretch}")
        self._stretch = stretch
        self.moved_bytes[stretch] = 0

    def moved(self, *, read_bytes: int = 0, written_bytes: int = 0) -> None:
        self.moved_bytes[self._stretch] += read_bytes + written_bytes

    def after(self, stretch: int) -> None:
        self.told.append(f"after {stretch}")


class HarnessContract(ABC):
    """Subclass it and give a harness of at least two stretches, or one that can have only one."""

    stretches: int

    @abstractmethod
    def harness(self, folder: Path) -> Harness[HarnessResult]:
        """Return a harness whose data lies under ``folder``."""

    def test_a_run_tells_its_stretches_and_bytes_and_keeps_its_output(self, tmp_path: Path) -> None:
        harness, watch, output = self.harness(tmp_path), Watch(), tmp_path / "output"
        result = harness.run(output, watch)
        assert watch.told == [
            word
            for number in range(self.stretches)
            for word in (f"before {number}", f"after {number}")
        ]
        assert sum(watch.moved_bytes.values()) == result.io.moved_bytes > 0
        assert len(set(watch.moved_bytes.values())) == 1
        assert result.io.seconds > 0
        assert result.io.cpu_s > 0
        assert result.command == tuple(harness.command())
        assert result.version
        assert result.reported
        assert any(path.stat().st_size for path in output.rglob("*") if path.is_file())
