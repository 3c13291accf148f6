"""One process that answers for itself: the communicator of a run without MPI."""

from __future__ import annotations

from typing import Any


class LocalCommunicator:
    """A world of one rank."""

    @property
    def rank(self) -> int:
        """Always 0."""
        return 0

    @property
    def world_size(self) -> int:
        """Always 1."""
        return 1

    def barrier(self) -> None:
        """Return at once: nobody else is waited for."""

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401 - the Communicator protocol's type
        """Return the one value in a list."""
        return [value]

    def broadcast(self, value: Any) -> Any:  # noqa: ANN401 - the Communicator protocol's type
        """Return the value itself."""
        return value
