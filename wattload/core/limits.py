"""The limit of this process on open files, which an engine with many files needs to be high."""

from __future__ import annotations

import resource

MOST_OPEN_FILES = 65536


def raise_open_files() -> None:
    """Raise the soft limit on open files as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
