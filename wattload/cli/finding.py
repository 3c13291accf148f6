"""What ``wattload doctor`` finds: a capability, whether it is there, and what mends it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

_TIMEOUT_S = 30.0


class Verdict(StrEnum):
    """Whether a capability is there."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One capability of this host.

    ``says`` is what was seen, ``adds`` what it is good for, ``mend`` the one command that brings it
    or shows why it is not there; empty where nothing is to be mended.
    """

    name: str
    verdict: Verdict
    says: str
    adds: str
    mend: str = ""

    def document(self) -> dict[str, str]:
        """Return it as JSON has it."""
        return {key: str(value) for key, value in asdict(self).items()}


def ask(command: Sequence[str]) -> tuple[bool, str]:
    """Run a program and return whether it succeeded, with the first line it printed."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return done.returncode == 0, lines[0] if lines else "it printed nothing"
