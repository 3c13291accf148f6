"""``load=none``: nothing keeps the host busy."""

from __future__ import annotations

from dataclasses import dataclass

from wattload.core.settings import setting


@dataclass(slots=True, kw_only=True)
class Config:
    """No load."""

    name: str = setting("none", "Selected by load=NAME.", choices=("none",))

    @property
    def expected_s(self) -> float:
        return 0.0

    def check(self) -> None:
        """Accept everything."""

    def require_possible(self, other_bytes: int) -> None:
        """Accept every host."""
