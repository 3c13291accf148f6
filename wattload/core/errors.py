"""The errors a user can meet, each with the exit status of the command line.

::

    WattloadError                       1
    ├── ConfigError (ValueError)        2   a setting is unknown, of the wrong type or out of range
    ├── TargetError (OSError)           2   the target is missing, full or read-only
    ├── DataError (ValueError)          2   a data folder or file is truncated or corrupt
    │   └── ForeignFileError            2   a file or folder is not ours to write
    ├── RecordError (ValueError)        2   a run record can't be read
    ├── MissingExtraError (ImportError) 2   an optional part of the distribution is not installed
    ├── PowerError                      1   a power source or a power state failed
    │   ├── PowerPermissionError (PermissionError)
    │   ├── PowerDataLostError              a meter says that it dropped readings
    │   └── PowerStateError             2   out of range, non-operational, or refused by the drive
    └── RunError                        1   the run could not be finished
        ├── MisplacedRecordError        1   a finished run's record is not in its folder
        └── RankLostError               1   another rank of the run has ended

A message is one or two sentences: what was wrong, the value, what is allowed and what to do.
 Only ``wattload.__main__`` turns an error into an exit status.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

INTERRUPTED = 130
"""The exit status of a command that a signal has ended."""

CHECK_FAILED = 3
"""The exit status of a command whose runs have finished and of which a check failed."""


class WattloadError(Exception):
    """Any error that is explained to the user without a traceback."""

    exit_code: ClassVar[int] = 1


class ConfigError(WattloadError, ValueError):
    """A setting is unknown, of the wrong type or outside its range."""

    exit_code = 2


class NoGpuError(ConfigError):
    """This host has no NVIDIA GPU, or no driver for it."""


class TargetError(WattloadError, OSError):
    """The target can't be used: missing, not writable, full, read-only, or of a refused kind."""

    exit_code = 2


class DataError(WattloadError, ValueError):
    """A data folder or a data file is foreign, truncated or corrupt."""

    exit_code = 2


class ForeignFileError(DataError):
    """What wattload would write is a link, a pipe, or somebody else's, or others may change it."""


class RecordError(WattloadError, ValueError):
    """A run record is missing, truncated, of another schema or edited."""

    exit_code = 2


class MissingExtraError(WattloadError, ImportError):
    """An optional part of the distribution is needed and not installed."""

    exit_code = 2


class PowerError(WattloadError):
    """A power source or a power state failed."""


class PowerPermissionError(PowerError, PermissionError):
    """This process may not use the drive's admin queue; the message names the capability."""


class PowerDataLostError(PowerError):
    """A meter reports dropped readings (an overrun), so it did not measure the whole run."""


class PowerStateError(PowerError, ValueError):
    """A power state is out of range, non-operational, or refused by the drive."""

    exit_code = 2


class PowerRefusedError(PowerStateError):
    """The drive refuses a value, with the status of Set Features."""


class RunError(WattloadError):
    """The run started but could not be finished."""


class MisplacedRecordError(RunError):
    """The run is finished, but its record had to be written to ``folder``, not to the run's own."""

    def __init__(self, sentence: str, folder: Path) -> None:
        super().__init__(sentence)
        self.folder = folder


class RankLostError(RunError):
    """Another rank failed and reports why; this one ends with the same status."""

    def __init__(self, status: int) -> None:
        super().__init__("another rank of this run has failed")
        self.status = status
