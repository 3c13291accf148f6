from __future__ import annotations

from tests.contracts.power_source import PowerSourceContract
from wattload.core.power import Evidence, PowerSource
from wattload.power.config import PowerConfig
from wattload.power.sources.none import find


class TestNone(PowerSourceContract):
    channels = frozenset()

    def make(self) -> PowerSource:
        (source,) = find((), PowerConfig(source="none"))
        return source


def test_nothing_is_measured_and_nothing_is_zero() -> None:
    (source,) = find((), PowerConfig(source="none"))
    source.open()
    source.start()
    assert source.read() == ()
    assert source.facts().evidence is Evidence.NONE
    assert source.facts().detail == "nothing is measured"
