"""A program as the meter of a virtual drive, judged by the drive's own account of its energy.

The program prints the true mean power of each half second, as a meter in the drive's slot would.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.lab.virtual_runs import POWER, SERIAL, UNET3D, VIRTUAL, prepare, run
from wattload.core.power import Evidence

pytestmark = [
    pytest.mark.lab,
    pytest.mark.lab_long,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab-all`"),
]

WITHIN = 0.01
METER = """\
import json, socket, time

stream = socket.socket(socket.AF_UNIX)
stream.connect(SOCKET)
answers = stream.makefile()
last_ns = time.monotonic_ns()
while True:
    time.sleep(0.5)
    now_ns, utc_s = time.monotonic_ns(), time.time()
    request = {"do": "energy", "start_ns": last_ns, "end_ns": now_ns}
    stream.sendall(json.dumps(request).encode() + b"\\n")
    joules = json.loads(answers.readline())["ok"]
    print(f"{utc_s:.6f} {joules * 1e9 / (now_ns - last_ns):.6f}", flush=True)
    last_ns = now_ns
"""


def test_energy_by_a_program_is_the_true_one(tmp_path: Path) -> None:
    prepare(*UNET3D)
    program = tmp_path / "meter.py"
    socket = Path(VIRTUAL) / "control.sock"
    program.write_text(METER.replace("SOCKET", repr(str(socket))))
    command = shlex.join([sys.executable, "-S", str(program)])
    ran = run(
        *UNET3D,
        state=None,
        label="program",
        power=(
            *POWER,
            "power=command",
            f"power.command.run={command}",
            "power.command.scope=drive",
            f"power.command.device={SERIAL}",
            "power.command.window_s=0.5",
            "power.command.accuracy.reading_percent=0.1",
        ),
    )
    phase = next(each.name for each in ran.record.windows if each.timed)
    energy = ran.energy(phase, "command")
    assert energy.evidence is Evidence.MEASURED
    assert energy.coverage is not None
    assert energy.coverage > 0.95  # a busy host reads a line too late
    assert energy.energy_j == pytest.approx(ran.truth_j(energy), rel=WITHIN)
    assert energy.energy_j is not None
    assert energy.uncertainty_j is not None
    assert abs(energy.energy_j - ran.truth_j(energy)) <= energy.uncertainty_j
