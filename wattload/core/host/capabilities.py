"""The capabilities of this process (capabilities(7))."""

from __future__ import annotations

from enum import IntEnum

from wattload.core.sysfs import LIVE, Roots, read_text


class Capability(IntEnum):
    """Bits of ``linux/capability.h``."""

    IPC_LOCK = 14
    """With it, the limit on locked memory does not count."""
    SYS_ADMIN = 21
    """A drive's admin commands require it, but for Identify."""


def has_capability(capability: Capability, roots: Roots = LIVE) -> bool:
    """Return whether this process has a capability in its effective set (``proc(5)``, CapEff)."""
    for line in read_text(roots.proc / "self/status").splitlines():
        name, _, bits = line.partition(":")
        if name == "CapEff":
            return bool(int(bits, 16) >> capability & 1)
    return False
