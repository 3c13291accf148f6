"""The limits of this process: raised where possible, and refused if nothing can work in them.

Libraries do not fail cleanly within a few hundred megabytes of address space: some of them spin.
"""

from __future__ import annotations

import os
import resource

from wattload.core.errors import ConfigError

LEAST_OPEN_FILES = 256
MOST_OPEN_FILES = 65536
LEAST_ADDRESS_BYTES = 1_000_000_000
"""What Python and the libraries of a command map."""
LEAST_ADDRESS_BYTES_OF_A_RUN = 2_000_000_000
"""What they map with the threads of a run, without its buffers."""

_MB = 1_000_000


def adjust_limits() -> None:
    """Raise the soft limit on open files; refuse limits within which no command works.

    Raises:
        ConfigError: too few open files, or too little address space.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if files < LEAST_OPEN_FILES:
        raise ConfigError(
            f"this process may have {files} open files, but wattload needs at least "
            f"{LEAST_OPEN_FILES}; raise the limit with ulimit -n {LEAST_OPEN_FILES} or more"
        )
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    if address_space_bytes() is not None:
        # Each of its threads maps 32 MB, one per core.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        require_address_space(LEAST_ADDRESS_BYTES)


def address_space_bytes() -> int | None:
    """Return the limit on this process's address space; ``None`` if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def require_address_space(needed_bytes: int) -> None:
    """Raise ``ConfigError`` if this process may map less than this."""
    limit_bytes = address_space_bytes()
    if limit_bytes is not None and limit_bytes < needed_bytes:
        raise ConfigError(
            f"this process may map {limit_bytes // _MB} MB of memory, but needs at least "
            f"{-(-needed_bytes // _MB)} MB; raise the limit with ulimit -v unlimited"
        )
