"""For how long this process did not run, counted by a thread in the engine's library."""

from __future__ import annotations

from wattload.core.units import NS_PER_S
from wattload.loaders.engine import library


def start() -> None:
    """Start to count, once for the process.

    Raises:
        MissingExtraError: the library is not built.
        OSError: there can't be another thread.
    """
    library.invoke("wl_heartbeat_start")


def missed_s() -> float:
    """Return for how many seconds since ``start`` the process did not run.

    It was stopped by a signal, frozen with its container, or had no CPU. A process that waits for
    I/O or sleeps is running. Interruptions of up to 0.25 s are not counted.
    """
    return float(library.load().wl_heartbeat_missed_ns() / NS_PER_S)
