from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import altair as alt
import pytest

from tests.records import Scenario
from tests.reports.conftest import arm, one
from wattload.reports.charts.effects import effects_figure
from wattload.reports.charts.timeline import timeline_figure
from wattload.reports.compare import compare
from wattload.reports.load import Run
from wattload.reports.subject import make_subject
from wattload.reports.svg import render
from wattload.reports.themes import PALETTE, light, style_rules
from wattload.reports.timeline import Timeline, make_timeline


def _bars(fill: str) -> alt.Chart:
    bars = alt.Chart(alt.NamedData(name="rows")).mark_bar(fill=fill)
    chart: alt.Chart = bars.encode(x=alt.X("v:Q"), y=alt.Y("name:N"))
    return chart


def _svg(name: str = "c", *, fill: str = "#0b7a75", label: str = "a") -> str:
    rows = [{"v": 1.23456789, "name": label}]
    return render(
        _bars(fill), {"rows": rows}, name=name, title="A <title>", description="What & why"
    )


def test_a_chart_is_named_and_described() -> None:
    svg = _svg()
    assert 'role="img" aria-labelledby="c-title c-desc"' in svg
    assert '<title id="c-title">A &lt;title&gt;</title>' in svg
    assert '<desc id="c-desc">What &amp; why</desc>' in svg


def test_a_chart_is_the_same_bytes_each_time() -> None:
    assert _svg() == _svg()


def test_a_chart_has_no_background_no_script_and_no_foreign_reference() -> None:
    svg = _svg()
    assert "<script" not in svg
    assert "href" not in svg
    assert "style=" not in svg
    assert 'fill="white"' not in svg


def test_labels_are_escaped() -> None:
    svg = _svg(label='<b onload="x">&')
    assert "&lt;b onload" in svg
    assert "<b" not in svg.replace("<bo", "")


def test_every_colour_has_a_rule_for_light_and_dark_and_its_own_value() -> None:
    rules = style_rules()
    dark = rules.split("prefers-color-scheme: dark")[1].split("@media print")[0]
    values = [colour.light for colour in PALETTE.values()]
    assert len(set(values)) == len(values)
    for role, colour in PALETTE.items():
        assert f'.chart [fill="{colour.light}"]{{fill:var(--{role})}}' in rules
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


def test_throughput_and_power_share_the_time_axis(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="a", seconds=3.0, power="measured", virtual=False))
    figure = timeline_figure("c", "unet3d", make_timeline(run))
    assert figure is not None
    assert "Throughput, GB/s" in figure.svg
    assert "Power, W" in figure.svg
    assert figure.svg.count("seconds since the first phase began") == 1
    assert figure.svg.count(">train<") == 1
    assert [role for role, _ in figure.legend] == ["read", "write", "device", "power"]


def test_the_table_of_a_timeline_holds_means_that_agree_with_the_bytes(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="a", seconds=20.0, power="measured", virtual=False))
    figure = timeline_figure("c", "unet3d", make_timeline(run))
    assert figure is not None
    assert len(figure.table.rows) == 24
    busy = [float(row[1].text) for row in figure.table.rows[10:20]]
    assert sum(busy) / len(busy) == pytest.approx(1.5, rel=0.1)


def test_a_hole_in_the_power_is_a_hole_in_the_line(tmp_path: Path) -> None:
    import numpy as np

    run = one(tmp_path, Scenario(run_id="a", seconds=3.0, power="measured", virtual=False))
    timeline = make_timeline(run)
    (line,) = timeline.watts
    value = line.value.copy()
    value[40:45] = np.nan

    def moves(timeline: Timeline) -> int:
        figure = timeline_figure("c", "x", timeline)
        assert figure is not None
        return sum(
            path.count("M")
            for path in re.findall(r'<path d="([^"]*)"[^>]*' + light("power"), figure.svg)
        )

    broken = replace(timeline, watts=(replace(line, value=value),))
    assert moves(broken) == moves(timeline) + 1


def test_nothing_to_draw_is_no_chart() -> None:
    empty = Timeline(strips=(), rates=(), watts=(), bands=(), start_s=0.0, end_s=1.0)
    assert timeline_figure("c", "x", empty) is None


def test_a_long_name_is_shortened_to_its_strip(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="a", seconds=30.0))
    figure = timeline_figure("c", "unet3d", make_timeline(run))
    assert figure is not None
    assert "warm…" in figure.svg or "war…" in figure.svg


def test_ratios_without_runs_are_no_chart(tmp_path: Path) -> None:
    subject = make_subject(
        [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, status="failed"))]
    )
    (group,) = subject.groups
    assert effects_figure("c", "x", compare(subject, group), "A", "B") is None


def test_called_ratios_have_the_colour_of_their_arm(arms: tuple[Run, ...]) -> None:
    subject = make_subject(arms)
    (group,) = subject.groups
    figure = effects_figure("c", "x", compare(subject, group), "A", "B")
    assert figure is not None
    assert f'fill="{light("a")}"' in figure.svg
    assert f'fill="{light("b")}"' not in figure.svg
    assert f'stroke="{light("device")}"' in figure.svg  # hollow: called for neither
