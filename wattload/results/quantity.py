"""Quantities for readers: decimal SI prefixes, four significant digits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType

from wattload.core.units import GB, J_PER_WH, KB, KIB, MB, MIB, TB, Unit

MISSING = "\u2013"
OUT_OF_RANGE = "out of range"
TIMES, MINUS = "\u00d7", "\u2212"
THIN_SPACE = "\u202f"
UNIT_SPACE = "\u00a0"
"""Between a number and its unit: no line break there."""

DIGITS = 4
CPU_TICK_S = 0.01
"""The kernel reports the CPU time of processes in ticks (``USER_HZ`` of ``proc(5)``)."""
_HOUR_S, _MINUTE_S = 3600.0, 60.0
_EXPONENT_FROM = 1e15
_LARGEST_RATIO = 1000
_LARGEST_SHARE = 0.999
"""Beyond these the figures of two arms differ by more than a ratio says."""

LEAST, MOST = 1e-30, 1e30
"""In SI base units: figures of runs are 0 or between these, so that they can be scaled and summed.

Values outside of them are not shown.
"""

DIRECTIONS: Mapping[str, str] = {
    "higher": "higher is better",
    "lower": "lower is better",
    "neither": "",
}
"""Which direction is better, in the words of the page."""

_BYTES = ((TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB"), (1, "B"))
_LADDERS: dict[Unit, tuple[tuple[float, float, str], ...]] = {
    Unit.BYTES: tuple((factor, factor, name) for factor, name in _BYTES),
    Unit.BYTES_PER_SECOND: tuple((factor, factor, f"{name}/s") for factor, name in _BYTES),
    Unit.SECONDS: ((0.1, 1, "s"), (1e-4, 1e-3, "ms"), (1e-7, 1e-6, "µs"), (0, 1e-9, "ns")),
    Unit.JOULES: ((J_PER_WH * KB, J_PER_WH * KB, "kWh"), (KB, J_PER_WH, "Wh"), (0, 1, "J")),
    Unit.WATTS: ((KB, KB, "kW"), (0.1, 1, "W"), (0, 1e-3, "mW")),
    Unit.BYTES_PER_JOULE: ((0, MB, "MB/s per W"),),
    Unit.JOULES_PER_BYTE: ((0, 1 / GB, "J/GB"),),
    Unit.SECONDS_PER_BYTE: ((0, 1 / GB, "s/GB"),),
    Unit.PER_JOULE: ((MB, MB, "M/J"), (10 * KB, KB, "k/J"), (0, 1, "/J")),
    Unit.SAMPLES_PER_SECOND: ((MB, MB, "M/s"), (10 * KB, KB, "k/s"), (0, 1, "/s")),
    Unit.FRACTION: ((0, 0.01, "%"),),
    Unit.COUNT: ((0, 1, ""),),
}
"""Per unit, from large to small: smallest magnitude, divisor and name.

A joule is a watt second, so bytes per joule are bytes per second per watt. Watt hours begin at 1000
joules.
"""


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit for display: a value in SI base units, divided by ``factor``, is in ``unit``."""

    factor: float
    unit: str

    def shown(self, value: float) -> float:
        """Return a value in SI base units in this scale's unit."""
        return value / self.factor


_ONE_UNIT: ContextVar[Mapping[Unit, Scale]] = ContextVar("one_unit", default=MappingProxyType({}))


@contextmanager
def one_unit(unit: Unit, scale: Scale) -> Iterator[None]:
    """Give all values of a unit one scale, such as Wh on a whole page, within this context."""
    token = _ONE_UNIT.set({**_ONE_UNIT.get(), unit: scale})
    try:
        yield
    finally:
        _ONE_UNIT.reset(token)


def scale_for(unit: Unit, *values: float | None) -> Scale:
    """Return the scale that suits the largest value, ignoring ``None`` and out-of-range values.

    Within ``one_unit`` it is the scale given there.
    """
    if (given := _ONE_UNIT.get().get(unit)) is not None:
        return given
    shown = [abs(value) for value in values if value is not None and not out_of_range(value)]
    largest = max(shown, default=0.0)
    steps = _LADDERS[unit]
    if largest == 0:
        factor, name = next(((f, n) for at, f, n in steps if f == 1), steps[-1][1:])
        return Scale(factor, name)
    factor, name = next(((f, n) for at, f, n in steps if largest >= at), steps[-1][1:])
    return Scale(factor, name)


def out_of_range(value: float | None) -> str:
    """Return why a value is not shown; empty for ``None`` and for all possible values."""
    if value is None or value == 0 or LEAST <= abs(value) <= MOST:
        return ""
    return f"the record has {value:.3g}, which is {OUT_OF_RANGE}"


def number(value: float | None, digits: int = DIGITS) -> str:
    """Return a number with that many significant digits and thin spaces between thousands."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return OUT_OF_RANGE
    if abs(value) >= _EXPONENT_FROM:
        return f"{value:.{digits - 1}e}"
    rounded = float(f"{value:.{digits - 1}e}")  # 99.97 rounds to 100.0, with one more digit
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    if decimals > 9:  # noqa: PLR2004 - below 1e-6 an exponent is easier to read
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{decimals}f}".replace(",", THIN_SPACE)


def whole(value: float | None) -> str:
    """Return a count without decimals, with thin spaces between thousands."""
    if value is None:
        return MISSING
    if abs(value) >= _EXPONENT_FROM:
        return scaled(value, Scale(1, ""))
    return f"{round(value):,}".replace(",", THIN_SPACE)


def scaled(value: float | None, scale: Scale, digits: int = DIGITS) -> str:
    """Return a value in a given scale, without the unit."""
    if value is None:
        return MISSING
    return OUT_OF_RANGE if out_of_range(value) else number(scale.shown(value), digits)


def quantity(value: float | None, unit: Unit, digits: int = DIGITS) -> str:
    """Return a value with a suitable unit: ``1.500 GB/s``; a dash for ``None``."""
    if value is None:
        return MISSING
    if out_of_range(value):
        return OUT_OF_RANGE
    if unit is Unit.COUNT and value == round(value):
        return whole(value)
    scale = scale_for(unit, value)
    return with_unit(scaled(value, scale, digits), scale)


def with_uncertainty(value: float, uncertainty: float | None, unit: Unit) -> str:
    """Return a value and its uncertainty in one unit: ``219.3 ± 5.0 J``; alone if it has none."""
    scale = scale_for(unit, value)
    return with_unit(plus_minus(value, uncertainty, scale), scale)


def plus_minus(value: float, uncertainty: float | None, scale: Scale, digits: int = DIGITS) -> str:
    """Return a value with as many decimals as its uncertainty, which has two digits.

    Args:
        value: the value.
        uncertainty: half the width of its interval; ``None`` if unknown.
        scale: the scale of both.
        digits: the significant digits of a value without uncertainty.
    """
    if not uncertainty or out_of_range(value) or out_of_range(uncertainty):
        return scaled(value, scale, digits)
    shown, margin = scale.shown(value), number(scale.shown(uncertainty), 2)
    if "e" in margin or abs(shown) >= _EXPONENT_FROM:
        return f"{scaled(value, scale, digits)} ± {margin}"
    decimals = len(margin.partition(".")[2])
    rounded = round(shown, decimals) or 0.0  # not -0.0
    return f"{rounded:,.{decimals}f} ± {margin}".replace(",", THIN_SPACE)


def duration_scale(seconds: float) -> Scale:
    """Return the unit that suits a duration: hours, minutes or seconds."""
    if seconds < 2 * _MINUTE_S:
        return Scale(1.0, "s")
    return Scale(_MINUTE_S, "min") if seconds < 2 * _HOUR_S else Scale(_HOUR_S, "h")


def duration(seconds: float) -> str:
    """Return a duration in hours, minutes or seconds, whichever suits it."""
    scale = duration_scale(seconds)
    return with_unit(scaled(seconds, scale, 3), scale)


def block_text(size_bytes: float) -> str:
    """Return a size of blocks, which are powers of two: ``4 KiB``."""
    for factor, unit in ((MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes / factor:g}{UNIT_SPACE}{unit}"
    if size_bytes < KIB:
        return f"{size_bytes:g}{UNIT_SPACE}B"
    return quantity(size_bytes, Unit.BYTES)


def cpu_digits(cpu_s: float) -> int:
    """Return how many significant digits the ticks of a CPU time carry."""
    return min(DIGITS, len(str(round(cpu_s / CPU_TICK_S))))


def cpu_per_byte(cpu_s: float, moved_bytes: int) -> str:
    """Return CPU time per GB to the digits of its ticks: ``0.21 s/GB``; a dash below 1 MB."""
    if moved_bytes < MB:
        return MISSING
    if cpu_s < CPU_TICK_S:
        return f"under {quantity(CPU_TICK_S / moved_bytes, Unit.SECONDS_PER_BYTE, 1)}"
    return quantity(cpu_s / moved_bytes, Unit.SECONDS_PER_BYTE, cpu_digits(cpu_s))


def bounded_quantity(
    value: float | None,
    lower: float | None,
    upper: float | None,
    unit: Unit,
    digits: int = DIGITS,
) -> str:
    """Return a value or its bounds with a unit: ``2.5 J``, ``1.0 to 2.5 J``, or ``≤ 2.5 J``.

    The bounds are used if ``value`` is ``None``; without an upper bound the result is a dash.
    """
    largest = value if value is not None else upper
    if largest is None:
        return MISSING
    if out_of_range(largest):
        return OUT_OF_RANGE
    scale = scale_for(unit, largest)
    text = (
        scaled(value, scale, digits)
        if value is not None
        else interval_text(lower, largest, scale, digits)
    )
    return with_unit(text, scale)


def interval_text(lower: float | None, upper: float, scale: Scale, digits: int = DIGITS) -> str:
    """Return bounds without the unit: both ends, or ≤ if the lower one is unknown."""
    text = scaled(upper, scale, digits)
    return f"≤ {text}" if lower is None else f"{scaled(lower, scale, digits)} to {text}"


def with_unit(text: str, scale: Scale) -> str:
    """Return a number's text with its unit."""
    return f"{text}{UNIT_SPACE}{scale.unit}" if scale.unit else text


def percent(share: float | None, digits: int = 3) -> str:
    return MISSING if share is None else f"{number(share * 100, digits)}{UNIT_SPACE}%"


def percentages(*shares: float, within: Sequence[float] = ()) -> str:
    """Return shares below 1 as percentages, with enough digits to differ and not to read 100.

    Shares over 99.9 % and losses over 1,000 % are only stated as such. A share ``within`` an
    interval has as many digits as its ends if it would otherwise be printed outside of them.
    """
    if all(share > _LARGEST_SHARE for share in shares):
        return f"over {number(_LARGEST_SHARE * 100, 3)}{UNIT_SPACE}%"
    digits = _share_digits(shares)
    if within:
        digits = _digits_within(shares[0], within, digits, _share_digits(within))
    shown = " to ".join(_percentage(share, digits) for share in shares)
    return f"{shown.replace('-', MINUS)}{UNIT_SPACE}%"


def _share_digits(shares: Sequence[float]) -> int:
    for digits in range(2, 7):
        texts = {_percentage(share, digits) for share in shares}
        if len({*texts, "100"}) > len(shares):
            return digits
    return 2


def _digits_within(value: float, ends: Sequence[float], digits: int, of_ends: int) -> int:
    """Return the digits of a value whose interval is printed with ``of_ends`` digits."""
    low, high = sorted(float(f"{end:.{of_ends - 1}e}") for end in ends)
    return digits if low <= float(f"{value:.{digits - 1}e}") <= high else of_ends


def _percentage(share: float, digits: int) -> str:
    if share > _LARGEST_SHARE:
        return f"over {number(_LARGEST_SHARE * 100, 3)}"
    if share < -_LARGEST_RATIO / 100:
        return f"under {MINUS}{whole(_LARGEST_RATIO)}"
    return number(share * 100, digits)


def ratio_text(
    ratio: float, digits: int = 3, within: Sequence[float] = (), end_digits: int = 3
) -> str:
    """Return a ratio; one over 1,000, or under the inverse of that, is only stated as such.

    A ratio ``within`` an interval has as many digits as its ends in ``ratio_ends``, of
    ``end_digits``, if it would otherwise be printed outside of them.
    """
    if within:
        digits = _digits_within(
            ratio, within, digits, _end_digits(min(within), max(within), end_digits)
        )
    if ratio > _LARGEST_RATIO:
        return f"over {whole(_LARGEST_RATIO)}"
    if ratio < 1 / _LARGEST_RATIO:
        return f"under {number(1 / _LARGEST_RATIO, 1)}"
    return number(ratio, digits)


def ratio_ends(lower: float, upper: float, digits: int = 3) -> str:
    """Return an interval of a ratio, with more digits if only those tell its ends apart."""
    if lower > _LARGEST_RATIO or upper < 1 / _LARGEST_RATIO:
        return ratio_text(lower if lower > _LARGEST_RATIO else upper)
    digits = _end_digits(lower, upper, digits)
    return f"{ratio_text(lower, digits)} to {ratio_text(upper, digits)}"


def _end_digits(lower: float, upper: float, digits: int) -> int:
    for count in range(digits, digits + 4):
        if ratio_text(lower, count) != ratio_text(upper, count):
            return count
    return digits


def listed(parts: list[str], word: str = "and") -> str:
    """Return the parts as in a sentence: ``a, b and c``."""
    if len(parts) < 2:  # noqa: PLR2004 - nothing to join
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: ``1 run``, ``3 runs``."""
    return f"{whole(count)} {noun if count == 1 else plural or noun + 's'}"
