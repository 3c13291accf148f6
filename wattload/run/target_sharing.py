"""Whether hosts see one folder or a drive each: proved before a run over several hosts writes.

Each host's leader writes a nonce into its targets, and looks for those of the other hosts.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from wattload.core.errors import TargetError
from wattload.core.files import choose_folder
from wattload.core.storage.targets import Target
from wattload.core.workload import Communicator
from wattload.run.config import TargetConfig
from wattload.run.hosts import ALSO

PREFIX = ".wattload-nonce-"


def prove_sharing(
    config: TargetConfig, targets: Sequence[Target], leaders: Communicator, hosts: Sequence[str]
) -> None:
    """Prove that directories are shared, or on a drive of each host, as ``target.shared`` states.

    The leader of each host has to call it; nothing stays in the directories.

    Args:
        config: the settings of the targets.
        targets: the directories of this host.
        leaders: the leaders of all hosts.
        hosts: the names of the hosts, by the rank of their leaders.

    Raises:
        TargetError: this host sees another folder than stated, or one where no drive is mounted.
            Notes have the faults of further targets.
    """
    nonce = secrets.token_hex(16)
    faults: list[str] = []
    with ExitStack() as written:
        try:
            for target in targets:
                written.enter_context(_nonce_file(target.path, nonce))
        except OSError as error:
            faults.append(f"{error.filename} can't be written: {error.strerror}")
        nonces = leaders.all_gather(nonce)
        for target in targets:
            seen = [host for host, each in zip(hosts, nonces, strict=True) if _has(target, each)]
            faults.extend(_faults(config, target, seen, hosts[leaders.rank], hosts[0]))
        leaders.barrier()  # all hosts have looked
    if not faults:
        return
    refusal = TargetError(faults[0])
    for fault in faults[1:]:
        refusal.add_note(ALSO + fault)
    raise refusal


@contextmanager
def _nonce_file(folder: Path, nonce: str) -> Iterator[None]:
    """Keep a file with the nonce in the folder while the block runs."""
    with choose_folder(folder) as opened:
        opened.write(PREFIX + nonce, nonce)
        try:
            yield
        finally:
            opened.remove(PREFIX + nonce)


def _has(target: Target, nonce: str) -> bool:
    """Return whether the nonce can be read back from a target."""
    try:
        return (target.path / (PREFIX + nonce)).read_text() == nonce
    except OSError:
        return False


def _faults(
    config: TargetConfig, target: Target, seen: Sequence[str], host: str, first: str
) -> Iterator[str]:
    """Yield what is wrong with a target of ``host`` that has the nonces of the hosts ``seen``.

    A folder that two hosts see is a fault of the later one.
    """
    system = target.facts.file_system
    if config.shared:
        if first not in seen:
            yield (
                f"{target.path} is not the folder that {first} sees, and target.shared=true means "
                "one for all hosts; mount the same file system on all, or use target.shared=false "
                "if each has a drive of its own"
            )
    elif seen and seen[0] != host:
        yield (
            f"{target.path} is the folder that {seen[0]} sees, and target.shared=false means a "
            "drive of its own for each host; use target.shared=true for a shared file system"
        )
    elif system is not None and system.is_root and not config.allow_unmounted:
        yield (
            f"{target.path} is on the root file system, as if its drive were not mounted; mount "
            "it, or use target.allow_unmounted=true"
        )
