"""The made-up machine under made-up runs: a host, a target, and an NVMe drive or a virtual disk."""

from __future__ import annotations

from typing import Any, TypeVar

from wattload.core.base_models import Observed
from wattload.core.clock import ClockAnchor
from wattload.core.record.host import HostFacts, HostRecord, HostState, SoftwareFacts
from wattload.core.record.target import (
    BlockNode,
    ControllerDifference,
    ControllerFacts,
    ControllerRecord,
    ControllerState,
    FileSystemFacts,
    PowerStateFacts,
    QueueFacts,
    SmartState,
    TargetFacts,
    TargetRecord,
    TargetState,
)

Part = TypeVar("Part", bound=Observed)
REALTIME_OFFSET_NS = 1_763_000_000_000_000_000


def read(kind: type[Part], reason: str, /, **values: Any) -> Part:
    """Return a part with the given values; every other optional field is missing for one reason."""
    gaps = [
        name
        for name, field in kind.model_fields.items()
        if name not in values and (field.is_required() or field.default is None)
    ]
    return kind(**dict.fromkeys(gaps), **values, missing=dict.fromkeys(gaps, reason))


def host(name: str, *, end_ns: int, virtual: bool, boot_ns: int = 0) -> HostRecord:
    """Return a host of two CPUs, or of 96 where it is no guest."""
    facts = read(
        HostFacts,
        "not looked at in test data",
        name=name,
        machine="x86_64",
        os="Ubuntu 24.04.2 LTS",
        kernel="6.8.0-45-generic",
        kernel_command_line="BOOT_IMAGE=/boot/vmlinuz root=/dev/vda1 ro quiet",
        cpu_model="AMD EPYC 9654 96-Core Processor",
        cpu_count=2 if virtual else 96,
        governor="performance",
        smt_active=not virtual,
        memory_bytes=25_769_803_776 if virtual else 274_877_906_944,
        swap_bytes=0,
        transparent_huge_pages="madvise",
        hypervisor="kvm" if virtual else "none",
    )
    before, after = _host_state(boot_ns, 0, 100.0), _host_state(boot_ns, end_ns - boot_ns, 160.0)
    return HostRecord(facts=facts, before=before, after=after)


def _host_state(boot_ns: int, since_ns: int, busy_s: float) -> HostState:
    return read(
        HostState,
        "no /proc/pressure on this kernel",
        clock=ClockAnchor(
            monotonic_ns=boot_ns + since_ns, realtime_ns=REALTIME_OFFSET_NS + since_ns
        ),
        cpu_busy_s=busy_s,
        cpu_total_s=2000.0 + 2 * since_ns / 1e9,
        steal_s=0.4 + busy_s / 1000,
        load_1min=0.6,
        memory_available_bytes=20_000_000_000,
        swap_used_bytes=0,
        dirty_bytes=40_000_000,
    )


def software() -> SoftwareFacts:
    """Return the versions of what ran."""
    return SoftwareFacts(
        wattload="0.1.0",
        python="3.11.7",
        libraries={"numpy": "2.3.0", "torch": "2.13.0", "pyarrow": "26.0.1"},
        git_commit="0123456789abcdef0123456789abcdef01234567",
        git_dirty=False,
    )


def target(path: str, host_name: str, *, serial: str, model: str, virtual: bool) -> TargetRecord:
    """Return a target on ext4, on a virtual disk or on a partition of an NVMe namespace."""
    facts = read(
        TargetFacts,
        "statx does not say",
        index=0,
        host=host_name,
        kind="directory",
        path=path,
        file_system=_file_system(path, "/dev/vda1" if virtual else "/dev/nvme0n1p1"),
        direct_io_memory_align_bytes=512,
        direct_io_offset_align_bytes=512,
        stack=_virtual_stack() if virtual else _nvme_stack(serial, model),
        devices=("vda",) if virtual else ("nvme0n1",),
        controllers=() if virtual else (serial,),
        virtual=virtual,
        warnings=(
            ("The target is on the root file system: its traffic is counted with ours.",)
            if virtual
            else ()
        ),
    )
    state = read(
        TargetState, "FIEMAP was not asked", index=0, free_bytes=61_000_000_000, fill_fraction=0.39
    )
    return TargetRecord(facts=facts, before=state, after=state)


def _file_system(path: str, source: str) -> FileSystemFacts:
    return read(
        FileSystemFacts,
        "unknown",
        category="local",
        type="ext4",
        source=source,
        mount_point=path,
        mount_options=("rw", "relatime"),
        total_bytes=100_000_000_000,
        block_bytes=4096,
        is_root=source == "/dev/vda1",
    )


def _block(kind: str, name: str, **values: Any) -> BlockNode:
    values = {"redundancy": 1.0, **values}
    return read(BlockNode, "not offered here", kind=kind, name=name, **values)


def _queue() -> QueueFacts:
    return read(
        QueueFacts,
        "no such file in sysfs",
        scheduler="none",
        write_cache="write back",
        nr_requests=1023,
        max_sectors_kb=1280,
        read_ahead_kb=128,
        logical_block_bytes=512,
        rotational=False,
    )


def _virtual_stack() -> BlockNode:
    disk = _block("virtio", "vda", size_bytes=107_374_182_400, queue=_queue())
    return _block("partition", "vda1", size_bytes=106_300_440_576, children=(disk,))


def _nvme_stack(serial: str, model: str) -> BlockNode:
    leaf = _block("controller", "nvme0", model=model, serial=serial)
    namespace = _block(
        "namespace", "nvme0n1", size_bytes=61_440_000_000_000, queue=_queue(), children=(leaf,)
    )
    return _block("partition", "nvme0n1p1", size_bytes=61_439_000_000_000, children=(namespace,))


def controller(host_name: str, serial: str, model: str, state: int, moved: int) -> ControllerRecord:
    """Return a Gen5 drive in a Gen4 slot, before and after ``moved`` bytes were written."""
    states = tuple(
        read(
            PowerStateFacts,
            "the descriptor leaves it 0",
            index=index,
            max_w=watts,
            operational=True,
            entry_latency_s=0.0,
            exit_latency_s=0.0,
        )
        for index, watts in enumerate((25.0, 20.0, 15.0))
    )
    facts = read(
        ControllerFacts,
        "not offered",
        host=host_name,
        serial=serial,
        name="nvme0",
        model=model,
        vendor_id="0x1344",
        transport="pcie",
        address="0000:41:00.0",
        numa_node=0,
        nvme_version="2.0",
        link_speed_max_gt_per_s=32.0,
        link_width_max=4,
        power_states=states,
        holds_system=False,
    )
    difference = read(
        ControllerDifference,
        "no OCP log C0h",
        changed=(),
        read_bytes=4_200_000_000,
        written_bytes=moved,
        thermal_transitions=0,
        media_errors=0,
        unsafe_shutdowns=0,
    )
    return ControllerRecord(
        facts=facts,
        before=_drive_state(state, 311, 5_000_000_000_000),
        after=_drive_state(state, 324, 5_000_000_000_000 + moved),
        difference=difference,
    )


def _drive_state(state: int, temperature_k: int, written_bytes: int) -> ControllerState:
    smart = read(
        SmartState,
        "not in this log",
        critical_warning=0,
        temperature_k=temperature_k,
        available_spare_percent=100,
        percentage_used=1,
        written_bytes=written_bytes,
        media_errors=0,
        unsafe_shutdowns=3,
        warning_temperature_minutes=0,
        critical_temperature_minutes=0,
        thermal_transitions_1=0,
        thermal_transitions_2=0,
        thermal_seconds_1=0,
        thermal_seconds_2=0,
    )
    return read(
        ControllerState,
        "the log is not offered",
        firmware="E2MU200",
        firmware_slot=1,
        lba_bytes=4096,
        volatile_write_cache=False,
        power_state=state,
        power_state_default=0,
        link_speed_gt_per_s=16.0,
        link_width=4,
        smart=smart,
    )
