from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model_host import packing
from tests.model_host.drive import Model, identify_bytes
from tests.power.nvme.admin import Answers
from wattload.core.errors import PowerError
from wattload.power.nvme.identify import (
    active_namespaces,
    decode_controller,
    decode_namespace,
    decode_power_state,
    identify_controller,
)

BYTE = st.integers(0, 0xFF)
WORD = st.integers(0, 0xFFFF)
DWORD = st.integers(0, 0xFFFF_FFFF)
RANK = st.integers(0, 31)
SCALE = st.integers(0, 3)
NIBBLE = st.integers(0, 15)
FILL = st.sampled_from((0, 0xFF))
WATTS = {1: 1e-4, 2: 1e-2}
WIDE = st.integers(0, 2**128 - 1)


def power(raw: int, scale: int) -> object:
    """The specification's rule, written down a second time."""
    return pytest.approx(raw * WATTS[scale]) if raw and scale in WATTS else None


def vault(raw: int, scale: int) -> object:
    return pytest.approx(raw * 10.0 ** (scale - 6)) if 1 <= raw <= 99 and scale <= 12 else None


@settings(deadline=None)
@given(
    fill=FILL, mp=WORD, mxps=st.booleans(), nops=st.booleans(), flags=st.integers(0, 63),
    enlat=DWORD, exlat=DWORD, ranks=st.tuples(RANK, RANK, RANK, RANK), high=st.integers(0, 7),
    idlp=WORD, ips=SCALE, actp=WORD, apw=st.integers(0, 7), aps=SCALE, low=st.integers(0, 7),
)  # fmt: skip
def test_power_latency_and_ranks_come_back_whatever_reserved_bits_say(
    *, fill: int, mp: int, mxps: bool, nops: bool, flags: int, enlat: int, exlat: int,
    ranks: tuple[int, int, int, int], high: int, idlp: int, ips: int, actp: int, apw: int,
    aps: int, low: int,
) -> None:  # fmt: skip
    names = ("rrt", "rrl", "rwt", "rwl")
    raw = packing.psd(
        fill=fill, mp=mp, flags=mxps | nops << 1 | flags << 2, enlat=enlat, exlat=exlat,
        idlp=idlp, ips=ips << 6 | low, actp=actp, apw_aps=apw | low << 3 | aps << 6,
        **{name: rank | high << 5 for name, rank in zip(names, ranks, strict=True)},
    )  # fmt: skip
    state = decode_power_state(raw, 7)
    assert state.index == 7
    assert state.max_w == power(mp, 1 if mxps else 2)
    assert state.operational is not nops
    assert state.entry_latency_s == (pytest.approx(enlat / 1e6) if enlat else None)
    assert state.exit_latency_s == (pytest.approx(exlat / 1e6) if exlat else None)
    assert (
        state.read_throughput_rank,
        state.read_latency_rank,
        state.write_throughput_rank,
        state.write_latency_rank,
    ) == ranks
    assert (state.idle_w, state.active_w) == (power(idlp, ips), power(actp, aps))
    assert state.active_workload == apw


@settings(deadline=None)
@given(
    epfrt=BYTE, fqvt=BYTE, epfvt=BYTE, epfrts=NIBBLE, fqvts=NIBBLE, epfvts=NIBBLE, high=NIBBLE,
    mbw=BYTE, mbws=BYTE, miiell=WORD,
)  # fmt: skip
def test_fields_of_the_newest_revisions_come_back(
    *, epfrt: int, fqvt: int, epfvt: int, epfrts: int, fqvts: int, epfvts: int, high: int,
    mbw: int, mbws: int, miiell: int,
) -> None:  # fmt: skip
    state = decode_power_state(
        packing.psd(
            epfrt=epfrt, fqvt=fqvt, epfvt=epfvt, epfrts_fqvts=epfrts | fqvts << 4,
            epfvts=epfvts | high << 4, mbw=mbw, mbws=mbws, miiell=miiell,
        ),
        0,
    )  # fmt: skip
    assert state.power_fail_recovery_s == vault(epfrt, epfrts)
    assert state.quiescence_vault_s == vault(fqvt, fqvts)
    assert state.power_fail_vault_s == vault(epfvt, epfvts)
    limit_s = pytest.approx(miiell * 100e-6) if miiell else None
    assert state.idle_exit_latency_limit_s == limit_s


@settings(deadline=None)
@given(fill=FILL, ctratt=DWORD, lpa=BYTE, oncs=WORD, vwc=BYTE, apsta=BYTE, hctma=WORD)
def test_capabilities_are_single_bits(
    *, fill: int, ctratt: int, lpa: int, oncs: int, vwc: int, apsta: int, hctma: int
) -> None:
    data = packing.controller(
        fill=fill, ctratt=ctratt, lpa=lpa, oncs=oncs, vwc=vwc, apsta=apsta, hctma=hctma
    )
    controller = decode_controller(data)
    bits = {
        "permissive_mode": (ctratt, 1),
        "endurance_groups": (ctratt, 4),
        "uuid_list": (ctratt, 9),
        "power_limit": (ctratt, 20),
        "power_measurement": (ctratt, 21),
        "voltage_measurement": (ctratt, 22),
        "effects_log": (lpa, 1),
        "supported_pages_log": (lpa, 5),
        "selects_features": (oncs, 4),
        "volatile_write_cache": (vwc, 0),
        "autonomous_transitions": (apsta, 0),
        "thermal_management": (hctma, 0),
    }
    for name, (word, bit) in bits.items():
        owner = controller if hasattr(controller, name) else controller.capabilities
        assert getattr(owner, name) is bool(word & 1 << bit), name


@settings(deadline=None)
@given(
    wctemp=WORD, cctemp=WORD, managed=st.booleans(), mntmt=WORD, mxtmt=WORD, tnvmcap=WIDE,
    unvmcap=WIDE, mup=WORD, mupa=BYTE, srv=BYTE, srs=BYTE, msmt=WORD, nn=DWORD, vid=WORD,
    cntlid=WORD,
    major=WORD, minor=BYTE, tertiary=BYTE,
)  # fmt: skip
def test_figures_of_the_controller_come_back_and_0_is_not_reported(
    *, wctemp: int, cctemp: int, managed: bool, mntmt: int, mxtmt: int, tnvmcap: int, unvmcap: int,
    mup: int, mupa: int, srv: int, srs: int, msmt: int, nn: int, vid: int, cntlid: int, major: int,
    minor: int, tertiary: int,
) -> None:  # fmt: skip
    controller = decode_controller(
        packing.controller(
            wctemp=wctemp, cctemp=cctemp, hctma=managed, mntmt=mntmt, mxtmt=mxtmt,
            tnvmcap=packing.wide(tnvmcap), unvmcap=packing.wide(unvmcap), mup=mup, mupa=mupa,
            ipmsr=srv | srs << 8, msmt=msmt, nn=nn, vid=vid, cntlid=cntlid,
            ver=major << 16 | minor << 8 | tertiary,
        )
    )  # fmt: skip
    reported = controller.capabilities
    assert reported.warning_temperature_k == (wctemp or None)
    assert reported.critical_temperature_k == (cctemp or None)
    assert reported.lowest_managed_temperature_k == (mntmt or None if managed else None)
    assert reported.highest_managed_temperature_k == (mxtmt or None if managed else None)
    assert controller.capacity_bytes == (tnvmcap or None)
    assert controller.unallocated_bytes == (unvmcap if tnvmcap else None)
    assert reported.unlimited_power_w == power(mup, mupa & 3)
    interval_s = pytest.approx(srv * 10.0 ** (srs - 7)) if srv and 1 <= srs <= 5 else None
    assert reported.power_sample_interval_s == interval_s
    assert reported.longest_measurement_minutes == (msmt or None)
    assert controller.vendor_id == vid
    assert controller.controller_id == cntlid
    assert controller.version == f"{major}.{minor}.{tertiary}"


@settings(deadline=None)
@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=8),
)
def test_names_come_back_without_padding(serial: str, model: str, firmware: str) -> None:
    data = packing.controller(
        sn=serial.encode().ljust(20), mn=model.encode().ljust(40), fr=firmware.encode().ljust(8)
    )
    controller = decode_controller(data)
    assert (controller.serial, controller.model, controller.firmware) == (serial, model, firmware)


@settings(deadline=None)
@given(st.binary(min_size=20, max_size=20))
def test_no_name_holds_what_a_terminal_would_obey(serial: bytes) -> None:
    found = decode_controller(packing.controller(sn=serial)).serial
    assert all(" " <= each <= "~" or each == "\ufffd" for each in found)
    assert decode_controller(packing.controller(sn=b"\x1b[2J\n9".ljust(20))).serial == "�[2J�9"


@settings(deadline=None)
@given(st.lists(WORD, min_size=1, max_size=32))
def test_every_state_stands_at_its_own_place(powers: list[int]) -> None:
    states = [packing.psd(mp=raw) for raw in powers]
    controller = decode_controller(packing.controller(states, fill=0xFF))
    assert [state.max_w for state in controller.power_states] == [power(raw, 2) for raw in powers]
    assert [state.index for state in controller.power_states] == list(range(len(powers)))


@settings(deadline=None)
@given(st.integers(0, 2**64))
def test_any_4096_bytes_decode_without_a_zero_or_negative_figure(seed: int) -> None:
    controller = decode_controller(Random(seed).randbytes(4096))
    for state in controller.power_states:
        figures = (
            state.max_w, state.idle_w, state.active_w, state.entry_latency_s,
            state.exit_latency_s, state.power_fail_recovery_s, state.idle_exit_latency_limit_s,
        )  # fmt: skip
        assert all(figure is None or figure > 0 for figure in figures)


def test_identify_is_read_by_cns_1() -> None:
    device = Answers(identify={1: packing.controller(vid=0x1344)})
    assert identify_controller(device).vendor_id == 0x1344
    (command,) = device.sent
    assert (command.opcode, command.cdw10, command.data_bytes) == (0x06, 1, 4096)


def test_structure_of_another_length_is_refused() -> None:
    with pytest.raises(PowerError, match="Identify Controller has 4096 bytes, got 4095"):
        decode_controller(bytes(4095))
    with pytest.raises(PowerError, match="power state descriptor has 32 bytes, got 31"):
        decode_power_state(bytes(31), 0)
    with pytest.raises(PowerError, match="4096 bytes, got 0"):
        decode_namespace(b"")


def test_list_of_namespaces_ends_at_the_first_zero() -> None:
    listed = packing.words({0: 3, 1: 5, 3: 9}, 1024, 4096)
    assert active_namespaces(Answers(identify={2: listed})) == (3, 5)
    full = packing.words({index: index + 1 for index in range(1024)}, 1024, 4096)
    assert active_namespaces(Answers(identify={2: full})) == tuple(range(1, 1025))


@pytest.mark.parametrize("exponent", [0, 64])
def test_block_of_an_impossible_size_is_an_error(exponent: int) -> None:
    data = bytearray(4096)
    data[130] = exponent
    with pytest.raises(PowerError, match=rf"2\^{exponent} bytes: the namespace is not active"):
        decode_namespace(bytes(data))


def test_controller_has_as_many_states_as_it_says() -> None:
    controller = decode_controller(identify_bytes(Model()))
    assert [state.index for state in controller.power_states] == [0, 1, 2, 3, 4]
    assert [state.max_w for state in controller.power_states] == [25.0, 18.0, 11.0, 4.0, 0.05]
    assert [state.operational for state in controller.power_states] == [True] * 3 + [False] * 2
    assert controller.state(4) is controller.power_states[4]
    assert controller.state(5) is None
    assert controller.state(-1) is None


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
