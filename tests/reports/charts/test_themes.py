"""The colours of arms and of marks can be told apart by every reader, in both schemes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from wattload.reports.charts.themes import PALETTE, arm_role, light, style_rules
from wattload.reports.stats.subject import LETTERS

PROTANOPIA = (
    (0.152286, 1.052583, -0.204868),
    (0.114503, 0.786281, 0.099216),
    (-0.003882, -0.048116, 1.051998),
)
DEUTERANOPIA = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
"""Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB."""

TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE = (0.9505, 1.0, 1.089)


def linear(colour: str) -> NDArray[np.float64]:
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    result: NDArray[np.float64] = np.where(
        parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4
    )
    return result


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    xyz = np.array(TO_XYZ) @ np.clip(rgb, 0, 1) / np.array(WHITE)
    bent = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * bent[1] - 16, 500 * (bent[0] - bent[1]), 200 * (bent[1] - bent[2])])


def test_every_arm_has_its_own_colour() -> None:
    assert len({light(arm_role(letter)) for letter in LETTERS}) == len(LETTERS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("eye", [np.eye(3), np.array(PROTANOPIA), np.array(DEUTERANOPIA)])
def test_arms_differ_for_readers_who_see_no_red_or_no_green(
    scheme: str, eye: NDArray[np.float64]
) -> None:
    colours = [getattr(PALETTE[arm_role(letter)], scheme) for letter in LETTERS]
    for one, other in itertools.combinations(colours, 2):
        apart = np.linalg.norm(lab(eye @ linear(one)) - lab(eye @ linear(other)))
        assert apart >= 15, (one, other)


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_arm_stands_out_from_the_page(letter: str, scheme: str) -> None:
    weights = np.array(TO_XYZ[1])
    own = weights @ linear(getattr(PALETTE[arm_role(letter)], scheme))
    page = weights @ linear(getattr(PALETTE["surface"], scheme))
    assert (max(own, page) + 0.05) / (min(own, page) + 0.05) >= 3


def test_every_colour_has_a_rule_for_light_and_dark_and_its_own_value() -> None:
    rules = style_rules()
    dark = rules.split("prefers-color-scheme: dark")[1].split("@media print")[0]
    values = [colour.light for colour in PALETTE.values()]
    assert len(set(values)) == len(values)
    for role, colour in PALETTE.items():
        assert f'.pic [fill="{colour.light}"]{{fill:var(--{role})}}' in rules
        assert f"--{role}:{colour.dark};" in dark


def _luminance(colour: str) -> float:
    """Relative luminance by WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("role", ["read", "write", "device", "power", "bound", "a", "b"])
def test_marks_stand_out_from_the_page_in_both_schemes(role: str) -> None:
    surface = PALETTE["surface"]
    assert _contrast(PALETTE[role].light, surface.light) >= 3
    assert _contrast(PALETTE[role].dark, surface.dark) >= 3


@pytest.mark.parametrize("role", ["text", "strong"])
def test_words_in_charts_are_legible_in_both_schemes(role: str) -> None:
    surface = PALETTE["surface"]
    assert _contrast(PALETTE[role].light, surface.light) >= 4.5
    assert _contrast(PALETTE[role].dark, surface.dark) >= 4.5
