"""A model of an NVMe drive that keeps its state in a file, for hardware that no test machine has.

Its bytes are packed from the specification's tables (``packing``), so that a decoder is not tested
with its own mistakes. The file outlives any process, as a drive does.
"""

from __future__ import annotations

import json
import struct
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.model_host import packing
from tests.model_host import settings as model_settings
from tests.model_host.power import Meter, measurement_bytes, ocp_bytes
from tests.model_host.settings import Knobs
from wattload.core.errors import PowerError, PowerPermissionError
from wattload.power.nvme.admin import AdminCommand, Completion

DNR = 0x4000
INVALID_FIELD = 0x0002 | DNR
INVALID_LOG = 0x0109 | DNR
NOT_CHANGEABLE = 0x010E | DNR


@dataclass(frozen=True, kw_only=True)
class RawState:
    """The 32 bytes of a power state descriptor, by the names of the specification."""

    mp: int = 0
    mxps: int = 0
    nops: int = 0
    enlat: int = 0
    exlat: int = 0
    rrt: int = 0
    rrl: int = 0
    rwt: int = 0
    rwl: int = 0
    idlp: int = 0
    ips: int = 0
    actp: int = 0
    apw: int = 0
    aps: int = 0
    epfrt: int = 0
    fqvt: int = 0
    epfvt: int = 0
    epfrts: int = 0
    fqvts: int = 0
    epfvts: int = 0
    miiell: int = 0

    def pack(self) -> bytes:
        raw = asdict(self)
        flags = raw.pop("mxps") | raw.pop("nops") << 1
        apw_aps = raw.pop("apw") | raw.pop("aps") << 6
        scales = raw.pop("epfrts") | raw.pop("fqvts") << 4
        raw["ips"] <<= 6
        return packing.psd(flags=flags, apw_aps=apw_aps, epfrts_fqvts=scales, **raw)


FIVE_STATES = (
    RawState(mp=2500, enlat=5, exlat=5, idlp=500, ips=2, actp=2200, apw=2, aps=2),
    RawState(mp=1800, enlat=10, exlat=10, rrt=1, rrl=1, rwt=1, rwl=1, idlp=500, ips=2),
    RawState(mp=1100, enlat=20, exlat=20, rrt=2, rrl=2, rwt=2, rwl=2, idlp=500, ips=2),
    RawState(mp=400, nops=1, enlat=2000, exlat=3000, rrt=3, rrl=3, rwt=3, rwl=3),
    RawState(mp=500, mxps=1, nops=1, enlat=8000, exlat=40000, rrt=4, rrl=4, rwt=4, rwl=4),
)


@dataclass(kw_only=True)
class Model:
    """What a model drive is and how it behaves."""

    serial: str = "MODEL0001"
    state: int = 0
    default_state: int = 0
    saveable: bool = False
    states: tuple[RawState, ...] = FIVE_STATES
    temperature_k: int = 310
    refuses: int = 0
    """NVMe status with which Set Features is answered."""
    stuck: bool = False
    """Set Features succeeds and changes nothing."""
    privileged: bool = True
    """Whether the kernel lets more than Identify through."""
    freezing: tuple[int, ...] = ()
    apst: bool = False
    ocp: bool = False
    endurance_group: int = 0
    selects: bool = True
    gone: bool = False
    failing: tuple[int, ...] = ()
    """Opcodes that are answered with Internal Error."""
    crashes: tuple[int, ...] = ()
    """Opcodes at which the model itself breaks, as a bug of ours would."""
    namespaces: tuple[int, ...] = (9,)
    """LBA exponents of the namespaces, 1 GiB each."""
    hanging: tuple[int, ...] = ()
    """Opcodes that are not answered until the model changes."""
    vendor_id: int = 0x1B36
    controller_id: int = 1
    meter: Meter = field(default_factory=Meter)
    """What it measures of its own power."""
    knobs: Knobs = field(default_factory=Knobs)
    """What caps its power beside the power states."""


class ModelDrive:
    """An ``AdminDevice`` on a model's file ``<folder>/<name>.json``."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.path = folder / f"{name}.json"
        if not self.path.exists():
            raise PowerError(f"/dev/{name} can't be opened (No such file or directory)")
        self._text = b""
        self._model = Model()

    def submit(self, command: AdminCommand) -> Completion:
        model = self._now()
        if model.gone:
            raise PowerError(f"{self.name}: {command.name} could not be sent: No such device")
        if not model.privileged and command.opcode != 0x06:
            raise PowerPermissionError(f"{self.name}: {command.name} needs CAP_SYS_ADMIN")
        while command.opcode in model.hanging:
            time.sleep(0.005)
            model = self._loaded()
        if command.opcode in model.crashes:
            raise ZeroDivisionError("a bug")
        if command.opcode in model.failing:
            return Completion(status=0x0006, result=0, data=bytes(command.data_bytes))
        status, result, data = _ANSWERS[command.opcode](self, model, command)
        data = data[: command.data_bytes].ljust(command.data_bytes, b"\0")
        return Completion(status=status, result=result, data=data)

    def close(self) -> None:
        """Nothing is held open."""

    def _now(self) -> Model:
        """Return the model with the change of state made that was due."""
        model = self._loaded()
        pending = model.knobs.pending
        if pending is not None and time.monotonic() >= pending[1]:
            model.state, model.knobs.pending = pending[0], None
            store(self.path, model)
        return model

    def _loaded(self) -> Model:
        """Return what the file says; read every time, understood again when it has changed."""
        with self.path.open("rb", buffering=0) as file:
            text = file.readall()
        if text != self._text:
            self._text, self._model = text, parsed(text)
        return self._model

    def _identify(self, model: Model, command: AdminCommand) -> tuple[int, int, bytes]:
        cns = command.cdw10 & 0xFF
        if cns == 0x00:
            return _namespace(model, command.namespace)
        if cns == 0x01:
            return 0, 0, identify_bytes(model)
        if cns == 0x17:
            return 0, 0, model_settings.uuid_list(model.knobs)
        numbers = range(1, len(model.namespaces) + 1)
        return 0, 0, struct.pack(f"<{len(numbers)}I", *numbers)

    def _get(self, model: Model, command: AdminCommand) -> tuple[int, int, bytes]:
        feature, select = command.cdw10 & 0xFF, command.cdw10 >> 8 & 7
        if feature == 0x02:
            state = model.state | model.knobs.hint << 5
            saved = model.knobs.saved
            values = (state, model.default_state, model.default_state if saved is None else saved)
            return 0, (*values, 4 | model.saveable)[select], b""
        if feature == 0x06:
            return 0, 1, b""
        if feature == 0x25 and model.meter.measures and not model.meter.hides_setting:
            return 0, model.meter.setting, b""
        answer = model_settings.get(model.knobs, command, apst=model.apst)
        return answer or (INVALID_FIELD, 0, b"")

    def _set(self, model: Model, command: AdminCommand) -> tuple[int, int, bytes]:
        with self.path.with_suffix(".log").open("a") as log:
            log.write(f"{command.cdw10:#x} {command.cdw11 or command.cdw13}\n")
        if model.refuses:
            if model.knobs.takes_refused:
                model.state = command.cdw11 & 0x1F
                store(self.path, model)
            return model.refuses, 0, b""
        if command.cdw10 & 0xFF not in (0x02, 0x25):
            answer = model_settings.set_(model.knobs, command, apst=model.apst)
            if not model.stuck:
                store(self.path, model)
            return answer or (INVALID_FIELD, 0, b"")
        if command.cdw10 & 0xFF == 0x25:
            if not model.meter.measures:
                return INVALID_FIELD, 0, b""
            if not model.stuck:
                model.meter.set(command.cdw11)
                store(self.path, model)
            return 0, 0, b""
        state = command.cdw11 & 0x1F
        if state >= len(model.states):
            return INVALID_FIELD, 0, b""
        if not model.stuck:
            model.knobs.hint = command.cdw11 >> 5 & 7
            if model.knobs.late_s:
                model.knobs.pending = (state, time.monotonic() + model.knobs.late_s)
            else:
                model.state = state
            store(self.path, model)
        return 0, 0, b""

    def _log(self, model: Model, command: AdminCommand) -> tuple[int, int, bytes]:
        page = command.cdw10 & 0xFF
        pages = {
            0x02: smart_bytes(model),
            0x03: b"\x12",
            0x05: effects_bytes(model.freezing),
        }
        if model.ocp:
            pages[0xC0] = ocp_bytes(model.meter)
        if model.meter.measures:
            pages[0x25] = measurement_bytes(model.meter)
        pages.update({int(key): bytes.fromhex(data) for key, data in model.meter.pages.items()})
        if model.endurance_group and command.cdw11 >> 16 == model.endurance_group:
            pages[0x09] = bytes(80) + (7).to_bytes(16, "little")
        return (0, 0, pages[page]) if page in pages else (INVALID_LOG, 0, b"")


_ANSWERS = {
    0x02: ModelDrive._log,
    0x06: ModelDrive._identify,
    0x09: ModelDrive._set,
    0x0A: ModelDrive._get,
}


def load(path: Path) -> Model:
    return parsed(path.read_bytes())


def parsed(text: bytes) -> Model:
    fields: dict[str, Any] = json.loads(text)
    fields["states"] = tuple(RawState(**state) for state in fields["states"])
    fields["meter"] = Meter(**fields["meter"])
    fields["knobs"] = Knobs(**fields["knobs"])
    return Model(**fields)


def store(path: Path, model: Model) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(model)))
    temporary.replace(path)


def sent(folder: Path, name: str = "nvme0") -> list[str]:
    """Return what Set Features has asked of a model, as ``cdw10 cdw11``, in order."""
    log = folder / f"{name}.log"
    return log.read_text().splitlines() if log.exists() else []


def identify_bytes(model: Model) -> bytes:
    attributes = bool(model.endurance_group) << 4 | model.meter.measures << 21
    interval = model.meter.interval_ms
    return packing.controller(
        [state.pack() for state in model.states],
        vid=model.vendor_id,
        sn=model.serial.encode().ljust(20),
        mn=b"Model drive".ljust(40),
        fr=b"1.0".ljust(8),
        cntlid=model.controller_id,
        ver=0x00020300,
        ctratt=attributes | model_settings.attributes(model.knobs),
        lpa=bool(model.freezing) << 1 | ("0" in model.meter.pages) << 5,
        apsta=model.apst,
        wctemp=343,
        cctemp=353,
        tnvmcap=packing.wide(len(model.namespaces) << 30),
        ipmsr=interval | 4 << 8 if interval else 0,
        nn=len(model.namespaces),
        oncs=model.selects << 4,
        vwc=1,
    )


def _namespace(model: Model, number: int) -> tuple[int, int, bytes]:
    data = bytearray(4096)
    exponent = model.namespaces[number - 1]
    blocks = (1 << 30) >> exponent
    struct.pack_into("<QQQ", data, 0, blocks, blocks, blocks // 2)
    struct.pack_into("<H", data, 102, model.endurance_group)
    data[128 + 2] = exponent
    return 0, 0, bytes(data)


def smart_bytes(model: Model) -> bytes:
    meter = model.meter
    values: dict[str, int | bytes] = {
        "temperature": model.temperature_k,
        "spare": 100,
        "threshold": 10,
        "used": 3,
        "units_written": packing.wide(meter.data_units_written),
        "tmt1_count": meter.throttled[0],
        "tmt2_seconds": meter.throttled[1],
        "olec": meter.olec,
        "ipm": meter.ipm,
    }
    return packing.pack(packing.SMART, 512, values)


def effects_bytes(freezing: tuple[int, ...]) -> bytes:
    words = dict.fromkeys(range(256), 1) | dict.fromkeys(freezing, 1 | 1 << 16)
    return packing.words(words, 256, 4096)
