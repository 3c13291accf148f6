from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence

import pytest

from tests.contracts.power_source import PowerSourceContract
from tests.power.sources.fake_nvml import ARCH_AMPERE, ARCH_VOLTA, FakeGpu, FakeNvml
from wattload.core.errors import MissingExtraError, PowerError
from wattload.core.power import Boxcar, Channel, Counter, Instant, PowerSource, Scope, Sensor
from wattload.power.config import PowerConfig
from wattload.power.sources.nvml import Nvml, NvmlEnergy, NvmlPower, find, find_gpus, load_nvml


class TestNvmlEnergy(PowerSourceContract):
    channels = frozenset({Channel.ENERGY_J})

    def make(self) -> PowerSource:
        self.nvml = FakeNvml()
        return NvmlEnergy("GPU-1", self.nvml, period_s=0.1)

    def break_reads(self, source: PowerSource) -> None:
        self.nvml.is_lost = True


class TestNvmlPower(PowerSourceContract):
    channels = frozenset({Channel.POWER_W})

    def make(self) -> PowerSource:
        self.nvml = FakeNvml()
        return NvmlPower("GPU-1", self.nvml, period_s=0.1)

    def break_reads(self, source: PowerSource) -> None:
        self.nvml.is_lost = True


def power_sensor(gpu: FakeGpu) -> Sensor:
    source = NvmlPower(gpu.uuid, FakeNvml(gpus=[gpu]), period_s=0.1)
    source.open()
    return source.facts().sensor


@pytest.mark.parametrize(
    ("architecture", "capability", "sensor"),
    [
        (ARCH_VOLTA, (7, 0), Instant()),
        (ARCH_AMPERE, (8, 0), Instant()),
        (ARCH_AMPERE, (8, 6), Boxcar(window_s=1.0)),
        (ARCH_AMPERE + 2, (9, 0), Boxcar(window_s=1.0)),
    ],
)
def test_power_is_a_mean_since_ampere_but_not_on_ga100(
    architecture: int, capability: tuple[int, int], sensor: Sensor
) -> None:
    assert power_sensor(FakeGpu(architecture=architecture, capability=capability)) == sensor


def test_counter_says_how_often_it_moves() -> None:
    source = NvmlEnergy("GPU-1", FakeNvml(gpus=[FakeGpu(moves_every_s=0.05)]), period_s=0.1)
    source.open()
    sensor = source.facts().sensor
    assert isinstance(sensor, Counter)
    assert sensor.update_period_s == pytest.approx(0.05, abs=0.011)
    assert "updated every" in source.facts().detail


def test_counter_that_stands_still_is_taken_to_move_once_in_the_time_it_was_watched() -> None:
    source = NvmlEnergy("GPU-1", FakeNvml(gpus=[FakeGpu(watts=0.0)]), period_s=0.1)
    source.open()
    assert source.facts().sensor == Counter(quantum_j=0.001, update_period_s=1.0)


def test_gpu_that_counts_energy_has_two_sources_of_gpu_scope() -> None:
    gpus = [
        FakeGpu(uuid="GPU-1"),
        FakeGpu(uuid="GPU-2", name="old", counts_energy=False, domain=1, bus=0xCA),
    ]
    sources = find_gpus(FakeNvml(gpus=gpus), period_s=0.1)
    for source in sources:
        source.open()
    facts = [source.facts() for source in sources]
    assert [(each.name, each.device, each.device_name) for each in facts] == [
        ("nvml_energy", "GPU-1", "NVIDIA Test"),
        ("nvml_power", "GPU-1", "NVIDIA Test"),
        ("nvml_power", "GPU-2", "old"),
    ]
    assert {each.scope for each in facts} == {Scope.GPU}
    addresses = [each.pci_address for each in facts]
    assert addresses == ["0000:65:00.0", "0000:65:00.0", "0001:ca:00.0"]


def test_millijoules_and_milliwatts_become_joules_and_watts() -> None:
    sources = find_gpus(FakeNvml(gpus=[FakeGpu(watts=70.5)]), period_s=0.1)
    for source in sources:
        source.open()
    (energy,), (power,) = (source.read() for source in sources)
    assert power.value == pytest.approx(70.5)
    assert energy.value == pytest.approx(70.5 * energy.time_ns / 1e9, rel=1e-4)


def test_nvml_is_left_as_often_as_it_was_entered() -> None:
    nvml = FakeNvml()
    _, source = find_gpus(nvml, period_s=0.1)
    assert nvml.open_count == 0
    source.open()
    assert nvml.open_count == 1
    source.close()
    source.close()
    assert nvml.open_count == 0


def test_missing_driver_is_one_sentence() -> None:
    with pytest.raises(PowerError, match=r"NVML can't be started .*Not Found.* NVIDIA's driver"):
        find_gpus(FakeNvml(has_driver=False), period_s=0.1)


def test_gpu_that_fails_while_listed_is_one_sentence() -> None:
    nvml = FakeNvml(is_lost=True)
    with pytest.raises(PowerError, match="can't list the GPUs: GPU is lost"):
        find_gpus(nvml, period_s=0.1)
    assert nvml.open_count == 0


def test_gpu_that_has_gone_since_is_one_sentence_and_leaves_nvml() -> None:
    nvml = FakeNvml()
    source = NvmlPower("GPU-9", nvml, period_s=0.1)
    with pytest.raises(PowerError, match="GPU GPU-9 reports no power: Not Found"):
        source.open()
    assert nvml.open_count == 0


def test_gpu_that_reports_no_power_is_refused() -> None:
    nvml = FakeNvml(gpus=[FakeGpu(counts_energy=False, tells_power=False)])
    (source,) = find_gpus(nvml, period_s=0.1)
    with pytest.raises(PowerError, match="reports no power: Not Supported"):
        source.open()


def test_read_before_open_is_refused() -> None:
    with pytest.raises(PowerError, match="read before it was opened"):
        NvmlPower("GPU-1", FakeNvml(), period_s=0.1).read()


def test_missing_module_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[gpu\]'"):
        find((), PowerConfig())


def test_fake_has_the_calls_of_the_real_module() -> None:
    real = load_nvml()
    names = [name for name in dir(Nvml) if name.startswith("nvml")]
    assert len(names) == 12
    for name in names:
        called_with = list(inspect.signature(getattr(real, name)).parameters)
        assert called_with == list(inspect.signature(getattr(FakeNvml(), name)).parameters), name
    assert issubclass(real.NVMLError, Exception)
    assert real.NVML_DEVICE_ARCH_AMPERE == ARCH_AMPERE


def test_real_module_lists_gpus_or_reports_that_there_is_no_driver() -> None:
    sources: Sequence[PowerSource] = ()
    reported = ""
    try:
        sources = find((), PowerConfig())
    except PowerError as error:
        reported = str(error)
    assert sources or "NVIDIA's driver" in reported
