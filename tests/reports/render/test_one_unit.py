"""All energies of a page are in one unit; only the sentences of checks keep the record's joules."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.reports.conftest import render_page
from tests.reports.parsing import Page
from tests.reports.sessions import run

REAL: dict[str, Any] = {"power": "measured", "virtual": False}


@pytest.mark.parametrize(("seconds", "other"), [(0.5, 40.0), (0.5, 0.6)])
def test_no_page_mixes_joules_and_watt_hours(seconds: float, other: float) -> None:
    runs = [
        run("short", workload="unet3d", seconds=seconds, **REAL),
        run("long", workload="checkpoint", seconds=other, **REAL),
    ]
    text = Page(render_page(runs)).text().replace("\u00a0", " ")
    text = re.sub(r"(energy is|minus idle power times seconds is) [\d.]+ J", "", text)
    units = set(re.findall(r"[\d.] (J|Wh|kWh)\b(?!/)", text))
    assert len(units) == 1, units
