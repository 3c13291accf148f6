"""What every power source must do, whatever it reads. Subclass it in the source's own test."""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pytest

from wattload.core.power import (
    Channel,
    Evidence,
    PowerSource,
    Sample,
    SourceFacts,
    WindowEnergy,
    weakest,
)

READS = 5


class PowerSourceContract(ABC):
    """Give ``make`` a source that can be opened, and ``break_reads`` a way to make reads fail.

    A source that reads no device (a data sheet, the null source) can't fail: it leaves
    ``break_reads`` as it is, and says in ``channels`` what it gives.
    """

    channels: frozenset[Channel] = frozenset({Channel.POWER_W})
    """What a read gives at least, once the source is open."""
    gathers = False
    """Whether a read gives what gathered since the last one, at times of its own."""

    @abstractmethod
    def make(self) -> PowerSource:
        """Return a source, not opened yet."""

    def break_reads(self, source: PowerSource) -> None:
        """Make the device refuse whatever it is asked from now on."""
        pytest.skip(f"{type(source).__name__} reads no device that could fail")

    @pytest.fixture
    def source(self) -> Iterator[PowerSource]:
        source = self.make()
        source.open()
        yield source
        source.restore()
        source.close()

    def test_facts_are_complete_after_open(self, source: PowerSource) -> None:
        facts = source.facts()
        assert facts.name
        assert facts.period_s > 0
        assert facts.device or facts.evidence is Evidence.NONE
        assert facts.detail
        assert SourceFacts.model_validate(json.loads(facts.model_dump_json())) == facts

    def test_facts_do_not_change_while_it_is_read(self, source: PowerSource) -> None:
        before = source.facts()
        source.start()
        source.read()
        source.stop()
        assert source.facts() == before

    def test_whole_life_in_order(self) -> None:
        source = self.make()
        source.open()
        source.start()
        assert isinstance(source.read(), Sequence)
        energies = source.stop()
        assert all(isinstance(energy, WindowEnergy) for energy in energies)
        source.restore()
        source.close()

    def test_restore_and_close_twice_do_no_harm(self) -> None:
        source = self.make()
        source.open()
        source.start()
        source.stop()
        source.restore()
        source.restore()
        source.close()
        source.close()

    def test_it_can_be_closed_without_a_start(self) -> None:
        source = self.make()
        source.open()
        source.close()

    def test_it_can_be_restored_and_closed_without_an_open(self) -> None:
        source = self.make()
        source.restore()
        source.close()

    def test_it_can_be_opened_again_after_close(self) -> None:
        source = self.make()
        source.open()
        first = source.facts()
        source.close()
        source.open()
        assert source.facts() == first
        source.close()

    def test_samples_carry_the_name_and_the_device_of_the_facts(self, source: PowerSource) -> None:
        facts = source.facts()
        for sample in self.read_some(source):
            assert sample.source == facts.name
            assert sample.device == facts.device

    def test_it_gives_its_channels(self, source: PowerSource) -> None:
        seen = {sample.channel for sample in self.read_some(source)}
        assert seen >= self.channels

    def test_times_are_monotonic_and_lie_in_the_read(self, source: PowerSource) -> None:
        begin_ns = time.monotonic_ns()
        source.start()
        last: dict[Channel, int] = {}
        for _ in range(READS):
            start_ns = time.monotonic_ns()
            samples = source.read()
            end_ns = time.monotonic_ns()
            for sample in samples:
                assert (begin_ns if self.gathers else start_ns) <= sample.time_ns <= end_ns
                assert sample.spread_ns >= 0
                assert self.gathers or sample.spread_ns <= end_ns - start_ns
                assert sample.time_ns >= last.get(sample.channel, 0)
                last[sample.channel] = sample.time_ns

    def test_values_are_finite_or_none(self, source: PowerSource) -> None:
        for sample in self.read_some(source):
            assert sample.value is None or math.isfinite(sample.value)

    def test_evidence_is_never_stronger_than_the_facts_say(self, source: PowerSource) -> None:
        stated = source.facts().evidence
        for sample in self.read_some(source):
            assert weakest([sample.evidence, stated]) is sample.evidence

    def test_failed_read_is_a_sample_without_value(self, source: PowerSource) -> None:
        source.start()
        given = {sample.channel for sample in source.read()}
        self.break_reads(source)
        failed = source.read()
        assert failed
        assert {sample.channel for sample in failed} <= given
        assert all(sample.value is None for sample in failed)

    def read_some(self, source: PowerSource) -> list[Sample]:
        """Return the samples of a few reads of a started source."""
        source.start()
        return [sample for _ in range(READS) for sample in source.read()]
