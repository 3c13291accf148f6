"""Blocks that are written, read and deleted while others move: the protocol of loaders for them.

A cache on a drive restores blocks for one request and stores those of another at the same time.
Each transfer is a plan of its own (``IOPlan``), submitted when it is due. Transfers of one kind
begin in the order of their submission, and up to ``queue_depth`` operations of each kind are in
flight over all transfers. A descriptor signals that some transfer has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from wattload.core.io import DataPath, IOPlan, IOResult
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLimits:
    """What transfers have in common: the size of an operation, and how many are in flight.

    ``queue_depth`` operations of ``request_bytes`` or less are in flight for reads, and as many for
    writes. ``largest_bytes`` is the longest extent, such as a file that is read in one piece.
    """

    request_bytes: int
    queue_depth: int
    largest_bytes: int


class Transfer(Protocol):
    """A plan under way; ``IOEngine``'s tickets are transfers. Used by one thread."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the plan is done, or for ``timeout_s``; return whether it is done."""
        ...

    def progress(self) -> tuple[int, int]:
        """Return the bytes and the operations that have completed."""
        ...

    def result(self) -> IOResult:
        """Wait until the plan is done and return the result.

        Raises:
            CancelledError: the plan was stopped before it was done.
            DataError: a file is shorter than an extent that is read, or changed meanwhile.
            OSError: the kernel refused; the message has the file.
        """
        ...

    def discard(self) -> None:
        """Stop the plan, wait for operations in flight and release it."""
        ...


class BlockTransfers(Protocol):
    """Open rings or threads, and memory, ready to move blocks."""

    @property
    def signal(self) -> int:
        """An event descriptor that becomes readable when a transfer has ended.

        The caller reads it, which resets it, before it looks at its transfers.
        """
        ...

    def submit(self, plan: IOPlan) -> Transfer:
        """Queue a plan behind the others of its kind, and return at once.

        A plan that writes creates its files, fills their blocks with incompressible bytes that
        carry stamps, and makes them durable if it has ``fsync``. One that reads compares stamps and
        sums: with ``sampled`` those of the first, the last, and one 4096-byte block of each extent
        that follows from its word, else of all blocks.
        """
        ...

    def path(self) -> DataPath:
        """Return the requested path of the bytes, and what moves them."""
        ...

    def close(self) -> None:
        """Stop all transfers and release the memory; safe to call twice."""
        ...


@runtime_checkable
class BlockTransferConfig(LoaderConfig, Protocol):
    """The configuration of a loader that moves blocks."""

    @property
    def transfers_directly(self) -> bool:
        """Whether blocks bypass the page cache."""
        ...

    def check_block_transfers(self, limits: TransferLimits, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work, before there is a file; creates nothing.

        Raises:
            ConfigError: the settings do not fit the limits or this host.
            MissingExtraError: a library behind the loader is not installed.
            TargetError: the loader can't work on one of the targets.
        """
        ...

    def block_transfer_bytes(self, limits: TransferLimits) -> int:
        """Return the host memory of the transfers."""
        ...

    def block_transfers(
        self,
        limits: TransferLimits,
        targets: Sequence[Target],
        *,
        seed: int,
        diskless: bool = False,
    ) -> BlockTransfers:
        """Return transfers that are ready; ``seed`` is that of the bytes between stamps.

        With ``diskless`` they access no file, for ceilings; what they read then counts as wrong.
        """
        ...
