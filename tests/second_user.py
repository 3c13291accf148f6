"""Steps of a test that another, unprivileged user takes."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER = 65534
"""The user and group ``nobody``."""


def need_second_user() -> None:
    """Skip a test that can't act as another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")


def as_other(step: Callable[[], object]) -> None:
    """Take a step in a child process as the other user; the test fails if the step does."""
    with warnings.catch_warnings():  # of threads, which no step uses
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            step()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the other user's step failed"


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a folder like ``/tmp``: everyone may create files there, and removes only their own."""
    # pytest's own folders are closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="wattload-test-"))
    folder.chmod(0o1777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
