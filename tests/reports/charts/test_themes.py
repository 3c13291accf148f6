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


def test_every_colour_has_a_rule_for_light_and_dark_and_its_own_value() -> None:
    rules = style_rules()
    dark = rules.split("prefers-color-scheme: dark")[1].split("@media print")[0]
    values = [colour.light for colour in PALETTE.values()]
    assert len(set(values)) == len(values)
    for role, colour in PALETTE.items():
        assert f'.pic [fill="{colour.light}"]{{fill:var(--{role})}}' in rules
        assert f"--{role}:{colour.dark};" in dark


ROLES = {
    **dict.fromkeys(map(arm_role, LETTERS), 3.0),
    **dict.fromkeys(("read", "write", "device", "power", "bound"), 3.0),
    **dict.fromkeys(("text", "strong"), 4.5),
}
"""The least contrast of marks and of words by WCAG 2.2."""


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_and_words_stand_out_from_the_page(role: str, scheme: str) -> None:
    own, page = (
        np.array(TO_XYZ[1]) @ linear(getattr(PALETTE[each], scheme)) for each in (role, "surface")
    )
    assert (max(own, page) + 0.05) / (min(own, page) + 0.05) >= ROLES[role]
