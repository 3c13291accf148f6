from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.power.energy_facts import facts
from tests.power.fake_source import FakeSource
from wattload.core.errors import ConfigError, MissingExtraError, PowerError, PowerPermissionError
from wattload.core.power import (
    Bounds,
    Evidence,
    Instant,
    PowerSource,
    Scope,
)
from wattload.power.config import DeclaredProfile, PowerConfig
from wattload.power.sources import selection
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.selection import Selection, select

DRIVE = PowerDevice(key="SERIAL1", name="nvme0", is_nvme=True)
OTHER = PowerDevice(key="SERIAL2", name="nvme1", is_nvme=True)
DISK = PowerDevice(key="vda", name="vda", is_nvme=False)


class Stub(FakeSource):
    """A source of a device with given evidence."""

    def __init__(
        self,
        name: str,
        device: PowerDevice,
        evidence: Evidence,
        *,
        scope: Scope = Scope.DRIVE,
        refusal: Exception | None = None,
    ) -> None:
        told = facts(
            name,
            evidence,
            Bounds() if evidence is Evidence.BOUNDS else Instant(),
            device=device.key,
            scope=scope,
        ).model_copy(update={"device_name": device.name, "detail": "as it says"})
        super().__init__(told, refusal=refusal)


class Shelf:
    """A fake registry: the results or errors of ``find_sources`` by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[str, list[Stub] | Exception] = {
            "nvml": PowerError("no GPU power here, as NVML can't be started")
        }
        monkeypatch.setattr(selection, "find_sources", self.find)
        self.monkeypatch = monkeypatch

    def drive_sources(self, *names: str) -> None:
        self.monkeypatch.setattr(selection, "auto_meters", lambda: names)

    def find(
        self, name: str, devices: Sequence[PowerDevice], config: PowerConfig
    ) -> Sequence[PowerSource]:
        found = self.found.get(name, [])
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return Shelf(monkeypatch)


def chosen(devices: Sequence[PowerDevice], source: str = "auto") -> Selection:
    return select(devices, PowerConfig(source=source), host="host1")


def test_auto_takes_the_drive_and_says_so(shelf: Shelf) -> None:
    nvme = Stub("nvme", DRIVE, Evidence.BOUNDS)
    shelf.found["nvme"] = [nvme]
    found = chosen([DRIVE])
    assert found.sources == (nvme,)
    assert nvme.is_open
    assert found.choice == "power=auto took nvme for nvme0 (drive, bounds): as it says."
    assert [(record.name, record.used) for record in found.records] == [
        ("nvme", True),
        ("nvml", False),
    ]
    assert found.records[1].sentence == "no GPU power here, as NVML can't be started"
    assert {record.host for record in found.records} == {"host1"}


def test_auto_adds_a_gpu_with_the_drive(shelf: Shelf) -> None:
    gpu = PowerDevice(key="GPU-1", name="H100", is_nvme=False)
    shelf.found["nvme"] = [Stub("nvme", DRIVE, Evidence.BOUNDS)]
    shelf.found["nvml"] = [Stub("nvml_power", gpu, Evidence.SELF_REPORTED, scope=Scope.GPU)]
    found = chosen([DRIVE])
    assert [source.facts().name for source in found.sources] == ["nvme", "nvml_power"]
    assert found.choice.endswith(
        "; also took nvml_power for H100 (gpu, self_reported): as it says, "
        "never added to a drive's."
    )


def test_auto_takes_every_source_of_a_drive(shelf: Shelf) -> None:
    weak, strong = Stub("nvme", DRIVE, Evidence.BOUNDS), Stub("ipm", DRIVE, Evidence.SELF_REPORTED)
    other = Stub("nvme", OTHER, Evidence.BOUNDS)
    shelf.drive_sources("nvme", "ipm")
    shelf.found |= {"nvme": [weak, other], "ipm": [strong]}
    found = chosen([DRIVE, OTHER])
    assert found.sources == (weak, other, strong)
    assert all(source.is_open for source in (weak, other, strong))
    assert found.choice == (
        "power=auto took nvme for nvme0 (drive, bounds): as it says; took nvme for nvme1 (drive, "
        "bounds): as it says; took ipm for nvme0 (drive, self_reported): as it says."
    )


def test_source_that_a_drive_lacks_is_recorded_with_those_it_has(shelf: Shelf) -> None:
    refused = Stub("ipm", DRIVE, Evidence.SELF_REPORTED, refusal=PowerError("nvme0 has no IPM"))
    shelf.found["nvme"] = [refused, Stub("nvme", DRIVE, Evidence.BOUNDS)]
    for source in ("auto", "nvme"):
        found = chosen([DRIVE], source)
        assert "IPM" not in found.choice
        reported = {record.name: record for record in found.records}
        assert (reported["nvme"].used, reported["ipm"].used) == (True, False)
        assert reported["ipm"].sentence == "nvme0 has no IPM"


def test_one_reason_of_several_sources_is_reported_once(shelf: Shelf) -> None:
    refusal = PowerPermissionError("/dev/nvme0 needs CAP_SYS_ADMIN")
    shelf.found["nvme"] = [
        Stub(name, DRIVE, Evidence.BOUNDS, refusal=refusal) for name in ("ipm", "nvme")
    ]
    assert chosen([DRIVE]).choice == (
        "power=auto found no source for nvme0 (/dev/nvme0 needs CAP_SYS_ADMIN)."
    )
    with pytest.raises(
        PowerError, match=r"is not available: /dev/nvme0 needs CAP_SYS_ADMIN; power="
    ):
        chosen([DRIVE], "nvme")


def test_auto_never_takes_a_data_sheet(shelf: Shelf) -> None:
    shelf.found["declared"] = [Stub("declared", DRIVE, Evidence.DECLARED)]
    assert chosen([DRIVE]).sources == ()


def test_auto_without_permission_says_what_the_drive_says(shelf: Shelf) -> None:
    refusal = PowerPermissionError("/dev/nvme0 needs CAP_SYS_ADMIN")
    shelf.found["nvme"] = [Stub("nvme", DRIVE, Evidence.BOUNDS, refusal=refusal)]
    found = chosen([DRIVE])
    assert found.sources == ()
    assert found.choice == "power=auto found no source for nvme0 (/dev/nvme0 needs CAP_SYS_ADMIN)."
    assert found.records[0].facts is not None


def test_auto_on_a_disk_that_is_not_nvme_says_why(shelf: Shelf) -> None:
    found = chosen([DISK])
    assert found.sources == ()
    assert found.choice == (
        "power=auto found no source for vda (not an NVMe drive, so it has no power telemetry)."
    )


def test_auto_without_any_drive_says_so(shelf: Shelf) -> None:
    assert chosen([]).choice == "power=auto found no known drive under the target."


def test_auto_goes_on_where_a_source_is_not_installed(shelf: Shelf) -> None:
    shelf.found["nvme"] = MissingExtraError("nvme needs the extra wattload[x]")
    found = chosen([DRIVE])
    assert (
        found.choice == "power=auto found no source for nvme0 (nvme needs the extra wattload[x])."
    )


def test_auto_where_no_source_knows_the_drive(shelf: Shelf) -> None:
    shelf.found["nvml"] = []
    assert chosen([DRIVE]).choice == "power=auto found no source for nvme0 (no source supports it)."


def test_named_source_is_taken(shelf: Shelf) -> None:
    shelf.found["nvme"] = [Stub("nvme", DRIVE, Evidence.BOUNDS)]
    found = chosen([DRIVE], "nvme")
    assert (
        found.choice
        == "power=nvme was requested and took nvme for nvme0 (drive, bounds): as it says."
    )


def test_named_source_that_one_drive_refuses_is_taken_for_the_other(shelf: Shelf) -> None:
    refused = Stub("nvme", OTHER, Evidence.BOUNDS, refusal=PowerError("nvme1 hangs"))
    shelf.found["nvme"] = [Stub("nvme", DRIVE, Evidence.BOUNDS), refused]
    found = chosen([DRIVE, OTHER], "nvme")
    assert found.choice.endswith("; but nvme1 hangs.")
    assert [record.used for record in found.records] == [True, False]


def test_named_source_without_a_device_names_what_lies_under_the_target(shelf: Shelf) -> None:
    with pytest.raises(PowerError, match=r"nvme has nothing to read \(under the target: vda\)"):
        chosen([DISK], "nvme")
    with pytest.raises(PowerError, match="no known drive"):
        chosen([], "nvme")


def test_failure_during_the_selection_leaves_nothing_open(shelf: Shelf) -> None:
    first = Stub("nvme", DRIVE, Evidence.BOUNDS)
    shelf.found["nvme"] = [first, Stub("nvme", OTHER, Evidence.BOUNDS, refusal=KeyError("bug"))]
    with pytest.raises(KeyError):
        chosen([DRIVE, OTHER])
    assert not first.is_open


def test_none_measures_nothing_and_says_so() -> None:
    found = select([DRIVE], PowerConfig(source="none"), host="host1")
    assert found.choice == "power=none was requested: nothing is measured."
    (source,) = found.sources
    assert source.facts().evidence is Evidence.NONE


def test_declared_profile_is_taken_for_any_disk() -> None:
    profile = DeclaredProfile(name="Drive X", citation="data sheet", max_w=20)
    found = select([DISK], PowerConfig(source="declared", profile=profile), host="host1")
    assert found.choice == (
        "power=declared was requested and took declared for vda (drive, declared): "
        "Drive X, maximum 20 W (data sheet)."
    )


def test_bad_profile_is_bad_input() -> None:
    profile = DeclaredProfile(name="Drive X", citation="data sheet")
    with pytest.raises(ConfigError, match="neither max_w nor typical_w"):
        select([DISK], PowerConfig(source="declared", profile=profile), host="host1")
