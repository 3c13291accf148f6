"""How the reports and files of all hosts come to the root: by host, in blocks.

The ranks of a host send their reports to its leader, and the leaders send these and the files of
their folders to the root, one host after the other. Whoever receives asks for one block after the
other, so that a message is never larger than a block, and the root can ask again after its disk was
full.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from wattload.core.files import checked_parts, open_folder, walk_names
from wattload.core.record.file import DRAFT_FILE, LOCK_FILE, OWNER_FILE, RESERVE_FILE
from wattload.run.folder import CONFIGURATION_FILE
from wattload.run.process import Peers
from wattload.run.ranks import BLOCK_BYTES
from wattload.run.record import HOST_FOLDER, HostReport, RankReport

_STAYS = (CONFIGURATION_FILE, DRAFT_FILE, LOCK_FILE, OWNER_FILE, RESERVE_FILE)
"""Files in the folder of a host that the root has itself."""


def rank_reports(local: Peers, own: RankReport) -> list[bytes]:
    """Return the pickled reports of all ranks of a host on its leader, nothing on the others."""
    report = pickle.dumps(own)
    if local.rank:
        _serve(local, [report])
        return []
    others = range(1, local.world_size)
    reports = [report, *(_whole(local, rank, 0) for rank in others)]
    for rank in others:
        local.send(None, rank)
    return reports


def send_report(
    leaders: Peers, report: HostReport, ranks: Sequence[bytes], *, files: Path | None
) -> None:
    """Send a host's report to the root, as often as it asks, until it has written the record.

    Args:
        leaders: the leaders of all hosts.
        report: the host's, without those of its ranks.
        ranks: the pickled reports of its ranks.
        files: the host's folder; ``None`` if that is the root's.
    """
    names = None if files is None else _names(files)
    head = pickle.dumps((report, len(ranks), names))
    _serve(leaders, [head, *ranks, *(report.folder / name for name in names or ())])


class ReceivedReports:
    """The reports of all hosts, on the root: its own, and those that the other leaders send."""

    def __init__(self, leaders: Peers, report: HostReport, ranks: Sequence[bytes]) -> None:
        """Take the root's own report, without and with those of its ranks, as ``send_report``."""
        self._leaders = leaders
        self._own = replace(report, ranks=[pickle.loads(each) for each in ranks])

    def __call__(self, place: Path) -> Iterator[HostReport]:
        """Yield the reports of all hosts.

        Files of the second host go to the folder ``host-1`` in ``place``, and so on.
        """
        yield self._own
        for rank in range(1, self._leaders.world_size):
            yield self._received(rank, place)

    def end(self) -> None:
        """Tell the leaders that the record is written."""
        for rank in range(1, self._leaders.world_size):
            self._leaders.send(None, rank)

    def _received(self, leader: int, place: Path) -> HostReport:
        report: HostReport
        report, count, names = pickle.loads(_whole(self._leaders, leader, 0))
        ranks = [pickle.loads(_whole(self._leaders, leader, 1 + each)) for each in range(count)]
        report = replace(report, ranks=ranks)
        if names is None:
            return replace(report, folder=self._own.folder)
        folder = place / f"{HOST_FOLDER}{leader}"
        for number, name in enumerate(names, start=1 + count):
            _write(place, f"{folder.name}/{name}", _blocks(self._leaders, leader, number))
        return replace(report, folder=folder)


def _write(place: Path, name: str, blocks: Iterator[bytes]) -> None:
    """Write a file below a folder."""
    *above, last = checked_parts(name)
    with ExitStack() as held:
        folder = held.enter_context(open_folder(place))
        for part in above:
            folder = held.enter_context(folder.make(part))
        with os.fdopen(folder.create(last), "wb") as file:
            file.writelines(blocks)


def _names(folder: Path) -> list[str]:
    """Return the files in the folder of a host that the root does not have."""
    with open_folder(folder) as opened:
        return [name for name in walk_names(opened) if name[-1] != "/" and name not in _STAYS]


def _serve(peers: Peers, items: Sequence[bytes | Path]) -> None:
    """Answer rank 0, which asks for the blocks of numbered items, until it needs no more."""
    while True:
        peers.wait(0)
        asked = peers.receive(0)
        if asked is None:
            return
        number, offset = asked
        peers.send(_block(items[number], offset), 0)


def _block(item: bytes | Path, offset: int) -> bytes:
    """Return a block of an item, nothing from its end on."""
    if isinstance(item, bytes):
        return item[offset : offset + BLOCK_BYTES]
    with item.open("rb") as file:
        file.seek(offset)
        return file.read(BLOCK_BYTES)


def _blocks(peers: Peers, rank: int, number: int) -> Iterator[bytes]:
    offset = 0
    while True:
        peers.send((number, offset), rank)
        block = peers.receive(rank)
        if not block:
            return
        offset += len(block)
        yield block


def _whole(peers: Peers, rank: int, number: int) -> bytes:
    return b"".join(_blocks(peers, rank, number))
