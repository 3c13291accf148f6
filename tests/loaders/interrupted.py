"""Scripts that load samples in a process of their own until somebody ends them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pathlib import Path
from tests.contracts.loader import Counter, make_samples
{imports}

if __name__ == "__main__":
    loader = {loader}
    try:
        for number in range(10**6):
            for position, batch in enumerate(loader.epoch(range(9))):
                if number == position == 0:  # once: the interrupt may come after the next batch
                    print("loading", flush=True)
    except KeyboardInterrupt:
        {close}
        print("closed", flush=True)
"""
"""``sys.argv[1]`` is the folder of the samples."""


def loading(
    folder: Path, imports: str, loader: str, *, close: str = "loader.close()"
) -> subprocess.Popen[str]:
    """Start such a script in a session of its own, and return when it has its first batch."""
    script = folder / "script.py"
    script.write_text(SCRIPT.format(imports=imports, loader=loader, close=close))
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    return process
