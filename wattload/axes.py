"""The overrides of a command line as axes: which keys are swept, and over which values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wattload.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One override of a command line; ``texts`` is what each of its values gives a single run."""

    key: str
    texts: tuple[str, ...]
    is_swept: bool

    @property
    def values(self) -> tuple[str, ...]:
        """The values as they were written, in their order."""
        return tuple(text.partition("=")[2] for text in self.texts)


def read_axes(overrides: Sequence[str], *, multirun: bool) -> tuple[Axis, ...]:
    """Return the axes in the order given; without ``multirun`` none of them is swept.

    Raises:
        ConfigError: an override can't be read, or sweeps what can't be swept.
    """
    if not multirun:
        return tuple(_fixed(text.partition("=")[0].strip(), text) for text in overrides)
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        return tuple(
            Axis(
                key=override.get_key_element(),
                texts=tuple(
                    f"{override.get_key_element()}={value}"
                    for value in override.sweep_string_iterator()
                ),
                is_swept=True,
            )
            if override.is_sweep_override()
            else _fixed(override.get_key_element(), override.input_line or "")
            for override in parsed
        )
    except HydraException as error:
        raise ConfigError(str(error).splitlines()[0]) from error


def _fixed(key: str, text: str) -> Axis:
    return Axis(key=key, texts=(text,), is_swept=False)


def product(axes: Sequence[Axis]) -> Iterator[tuple[str, ...]]:
    """Yield the overrides of every combination of values, the last axis fastest."""
    yield from itertools.product(*(axis.texts for axis in axes))
