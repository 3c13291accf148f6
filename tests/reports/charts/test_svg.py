from __future__ import annotations

import altair as alt

from wattload.reports.charts.svg import render


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
