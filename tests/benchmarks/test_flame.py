"""What perf prints becomes stacks of the thread that moves bytes, and a drawing of them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import engine, flame
from benchmarks.measure import NotMeasuredError

SAID = """
  100
    ffffffff81 do_sys_poll ([kernel.kallsyms])
          20ca PyEval_EvalFrameDefault (/usr/bin/python3.11)

  101
    ffffffff82 io_read ([kernel.kallsyms])
    ffffffff83 io_uring_enter ([kernel.kallsyms])
        7fb578 [unknown] ([unknown])
          1f20 wl_poller (/x/libwattload_engine.so)

  101
          1f24 [unknown] (/x/libwattload_engine.so)
          1f20 wl_poller (/x/libwattload_engine.so)

  101
    ffffffff82 io_read ([kernel.kallsyms])
    ffffffff83 io_uring_enter ([kernel.kallsyms])
        7fb578 [unknown] ([unknown])
          1f20 wl_poller (/x/libwattload_engine.so)
"""
IN_KERNEL = ("wl_poller", "io_uring_enter", "io_read [kernel.kallsyms]")
IN_ENGINE = ("wl_poller", "libwattload_engine.so [libwattload_engine.so]")


def stacks() -> Counter[flame.Stack]:
    return flame.moving(flame.folded(SAID.splitlines()))


def test_stacks_begin_with_the_outermost_frame_and_leave_out_other_threads() -> None:
    assert stacks() == {IN_KERNEL: 2, IN_ENGINE: 1}


def test_without_a_moving_thread_there_is_nothing() -> None:
    assert not flame.moving(flame.folded(SAID.splitlines()[:4]))
    assert not flame.moving([])


def test_shares_are_of_all_samples() -> None:
    name, share = flame.top(stacks())[0]
    assert name == "io_read [kernel.kallsyms]"
    assert share == pytest.approx(2 / 3)
    shares = dict(flame.libraries(stacks()))
    assert shares == pytest.approx({"[kernel.kallsyms]": 2 / 3, "[libwattload_engine.so]": 1 / 3})


def test_the_drawing_is_as_wide_as_its_samples() -> None:
    root = ElementTree.fromstring(flame.svg("a < b", stacks()))
    boxes = {
        group[0].text: float(group[1].attrib["width"])
        for group in root.iter("{http://www.w3.org/2000/svg}g")
    }
    assert boxes["wl_poller 100.0%"] == flame.WIDTH_PX
    assert boxes["io_uring_enter 66.7%"] == pytest.approx(flame.WIDTH_PX * 2 / 3, abs=0.1)


def test_without_perf_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NotMeasuredError, match="apt-get install linux-perf"):
        flame.recorded(["true"])


def test_stacks_table_and_drawing_are_kept(tmp_path: Path) -> None:
    said = flame._kept("wattload", stacks(), tmp_path)
    assert "66.7%  [kernel.kallsyms]" in said
    kept = (tmp_path / "flame-wattload.folded").read_text().splitlines()
    assert f"{';'.join(IN_KERNEL)} 2" in kept
    assert (tmp_path / "flame-wattload.svg").read_text().startswith("<svg ")


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("perf") and shutil.which("fio")) or os.geteuid() != 0,
    reason="needs perf, leave to record, and fio",
)
def test_a_thread_that_moves_bytes_is_really_seen(tmp_path: Path) -> None:
    (tmp_path / "0.bin").write_bytes(os.urandom(1 << 20))
    (job,) = replace(engine.CASES[2], batches=(1,)).fios([tmp_path / "0.bin"]).values()
    stacks = flame.recorded(replace(job, seconds=0.5).command())
    assert stacks.total() > 0
    assert any("io_uring_enter" in frame for stack in stacks for frame in stack)
