"""A clock and a tier that take no time: what is measured is the server itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wattload.loaders.block_transfers import Transfer
from wattload.workloads.kv_cache.tier import Placed


class VirtualClock:
    """Time that passes only by waiting: a server without a drive then runs as fast as it can."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now(self) -> float:
        return self._now_s

    def wait(self, seconds: float, signal: int | None) -> None:
        self._now_s += max(seconds, 0.0)


class NullTier:
    """Takes and has every block at once."""

    @property
    def signal(self) -> int | None:
        return None

    def restore(self, blocks: Sequence[Placed]) -> Sequence[tuple[Transfer, int]]:
        return ()

    def store(self, block: Placed) -> Transfer | None:
        return None

    def commit(self, block: Placed) -> int:
        return 0

    def delete(self, blocks: Iterable[Placed], *, unfinished: bool = False) -> None:
        """Delete nothing."""

    def share_target(self, slot: int, other: int) -> bool:
        return True

    def sync(self) -> int:
        return 0
