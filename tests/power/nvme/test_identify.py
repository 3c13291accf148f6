from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.model_host.drive import FIVE_STATES, Model, RawState, identify_bytes
from tools.model_host.power import Meter
from wattload.core.errors import PowerError
from wattload.power.nvme.identify import decode_controller, decode_namespace, decode_power_state

QEMU_STATE = bytes.fromhex("c409 0000 10000000 04000000") + bytes(20)
"""Power state 0 of the controller that QEMU 7.2 emulates, as it answers Identify."""

BYTE = st.integers(0, 0xFF)
WORD = st.integers(0, 0xFFFF)
RANK = st.integers(0, 31)
SCALE = st.integers(0, 3)
NIBBLE = st.integers(0, 15)

RAW_STATES = st.builds(
    RawState,
    mp=WORD, mxps=st.integers(0, 1), nops=st.integers(0, 1),
    enlat=st.integers(0, 0xFFFFFFFF), exlat=st.integers(0, 0xFFFFFFFF),
    rrt=RANK, rrl=RANK, rwt=RANK, rwl=RANK,
    idlp=WORD, ips=SCALE, actp=WORD, apw=st.integers(0, 7), aps=SCALE,
    epfrt=BYTE, fqvt=BYTE, epfvt=BYTE, epfrts=NIBBLE, fqvts=NIBBLE, epfvts=NIBBLE,
    miiell=WORD,
)  # fmt: skip


def test_state_of_stock_qemu() -> None:
    state = decode_power_state(QEMU_STATE, 0)
    assert state.max_w == 25.0
    assert state.operational
    assert (state.entry_latency_s, state.exit_latency_s) == (16e-6, 4e-6)
    assert (state.idle_w, state.active_w) == (None, None)
    assert (state.power_fail_recovery_s, state.idle_exit_latency_limit_s) == (None, None)


@pytest.mark.parametrize(
    ("mp", "mxps", "watts"), [(2500, 0, 25.0), (57, 0, 0.57), (500, 1, 0.05), (0, 0, None)]
)
def test_maximum_power_has_two_scales_and_0_is_not_reported(
    mp: int, mxps: int, watts: float | None
) -> None:
    assert decode_power_state(RawState(mp=mp, mxps=mxps).pack(), 0).max_w == watts


@pytest.mark.parametrize(
    ("raw", "scale", "watts"),
    [(500, 1, 0.05), (500, 2, 5.0), (500, 0, None), (0, 1, None), (0, 2, None), (500, 3, None)],
)
def test_idle_and_active_power_need_value_and_scale(
    raw: int, scale: int, watts: float | None
) -> None:
    state = decode_power_state(RawState(idlp=raw, ips=scale, actp=raw, aps=scale).pack(), 0)
    assert (state.idle_w, state.active_w) == (watts, watts)


@pytest.mark.parametrize(
    ("raw", "scale", "seconds"),
    [(1, 0, 1e-6), (5, 1, 50e-6), (99, 6, 99.0), (2, 12, 2e6), (0, 6, None), (100, 6, None),
     (1, 13, None)],
)  # fmt: skip
def test_vault_times_count_in_powers_of_ten_from_a_microsecond(
    raw: int, scale: int, seconds: float | None
) -> None:
    state = decode_power_state(
        RawState(epfrt=raw, fqvt=raw, epfvt=raw, epfrts=scale, fqvts=scale, epfvts=scale).pack(),
        0,
    )
    assert state.power_fail_recovery_s == seconds
    assert state.quiescence_vault_s == seconds
    assert state.power_fail_vault_s == seconds


@settings(deadline=None)
@given(RAW_STATES, RANK)
def test_every_field_of_a_state_comes_back(raw: RawState, index: int) -> None:
    state = decode_power_state(raw.pack(), index)
    units = {1: 10_000, 2: 100}
    assert state.index == index
    assert state.operational == (raw.nops == 0)
    assert (state.max_w or 0) * (10_000 if raw.mxps else 100) == pytest.approx(raw.mp)
    assert (state.entry_latency_s or 0) * 1e6 == pytest.approx(raw.enlat)
    assert (state.exit_latency_s or 0) * 1e6 == pytest.approx(raw.exlat)
    assert state.read_throughput_rank == raw.rrt
    assert state.read_latency_rank == raw.rrl
    assert state.write_throughput_rank == raw.rwt
    assert state.write_latency_rank == raw.rwl
    assert state.active_workload == raw.apw
    if raw.ips in units:
        assert (state.idle_w or 0) * units[raw.ips] == pytest.approx(raw.idlp)
    if raw.aps in units:
        assert (state.active_w or 0) * units[raw.aps] == pytest.approx(raw.actp)
    assert (state.idle_exit_latency_limit_s or 0) * 10_000 == pytest.approx(raw.miiell)


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_no_descriptor_gives_a_negative_or_a_zero_figure(data: bytes) -> None:
    state = decode_power_state(data, 0)
    figures = (state.max_w, state.idle_w, state.active_w, state.entry_latency_s)
    assert all(figure is None or figure > 0 for figure in figures)


def test_controller_has_as_many_states_as_it_says() -> None:
    controller = decode_controller(identify_bytes(Model()))
    assert [state.index for state in controller.power_states] == [0, 1, 2, 3, 4]
    assert [state.max_w for state in controller.power_states] == [25.0, 18.0, 11.0, 4.0, 0.05]
    assert [state.operational for state in controller.power_states] == [True] * 3 + [False] * 2
    assert controller.state(4) is controller.power_states[4]
    assert controller.state(5) is None
    assert controller.state(-1) is None


def test_controller_identity_is_stripped_of_its_padding() -> None:
    controller = decode_controller(identify_bytes(Model(serial="S/N 1")))
    assert (controller.serial, controller.model, controller.firmware) == (
        "S/N 1",
        "Model drive",
        "1.0",
    )
    assert controller.version == "2.3.0"
    assert controller.vendor_id == 0x1B36


def test_controller_capabilities_are_single_bits() -> None:
    plain = decode_controller(identify_bytes(Model(selects=False)))
    able = Model(apst=True, freezing=(2,), endurance_group=1, meter=Meter(measures=True))
    rich = decode_controller(identify_bytes(able))
    assert (plain.apst_supported, plain.effects_log, plain.endurance_groups) == (False,) * 3
    assert (rich.apst_supported, rich.effects_log, rich.endurance_groups) == (True,) * 3
    assert (plain.selects_features, rich.selects_features) == (False, True)
    assert (plain.power_measurement, rich.power_measurement) == (False, True)
    assert not rich.power_limit


def test_temperatures_and_capacities_of_0_are_not_reported() -> None:
    data = bytearray(identify_bytes(Model()))
    assert decode_controller(bytes(data)).warning_temperature_k == 343
    data[266:270] = bytes(4)
    data[280:312] = bytes(32)
    controller = decode_controller(bytes(data))
    assert controller.warning_temperature_k is None
    assert controller.critical_temperature_k is None
    assert controller.capacity_bytes is None
    assert controller.unallocated_bytes is None


def test_full_drive_has_0_bytes_unallocated() -> None:
    assert decode_controller(identify_bytes(Model())).unallocated_bytes == 0


def test_number_of_states_beyond_the_table_is_cut() -> None:
    data = bytearray(identify_bytes(Model()))
    data[263] = 255
    assert len(decode_controller(bytes(data)).power_states) == 32


def test_cut_structures_are_refused() -> None:
    with pytest.raises(PowerError, match="4096 bytes, got 100"):
        decode_controller(bytes(100))
    with pytest.raises(PowerError, match="4096 bytes, got 0"):
        decode_namespace(b"")


@pytest.mark.parametrize(("formats", "flbas", "index"), [(0, 0, 0), (3, 2, 2), (17, 0x20, 16)])
def test_namespace_sizes_count_in_the_block_it_is_formatted_with(
    formats: int, flbas: int, index: int
) -> None:
    data = bytearray(4096)
    struct.pack_into("<QQQ", data, 0, 1000, 900, 10)
    data[25], data[26] = formats, flbas
    struct.pack_into("<HB", data, 128 + 4 * index, 8, 12)
    namespace = decode_namespace(bytes(data))
    assert namespace.lba_bytes == 4096
    assert namespace.metadata_bytes == 8
    assert (namespace.size_bytes, namespace.capacity_bytes) == (4096 * 1000, 4096 * 900)
    assert namespace.used_bytes == 40960


@pytest.mark.parametrize(("features", "preferred"), [(0x10, 16384), (0x0F, None)])
def test_the_preferred_write_size_counts_in_blocks_and_from_zero(
    features: int, preferred: int | None
) -> None:
    data = bytearray(4096)
    data[24] = features
    struct.pack_into("<H", data, 64, 3)
    struct.pack_into("<HB", data, 128, 0, 12)
    assert decode_namespace(bytes(data)).preferred_write_bytes == preferred


def test_inactive_namespace_is_an_error() -> None:
    with pytest.raises(PowerError, match="not active"):
        decode_namespace(bytes(4096))


def test_model_packs_states_of_32_bytes() -> None:
    assert [len(state.pack()) for state in FIVE_STATES] == [32] * 5
    assert RawState(mp=2500, enlat=16, exlat=4).pack() == QEMU_STATE
