"""The stubs behave as the libraries that they stand for, where readers depend on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, json, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
cufile = ctypes.CDLL("libcufile.so.0")
class Status(ctypes.Structure):
    _fields_ = [("err", ctypes.c_int), ("cu_err", ctypes.c_int)]
class Descriptor(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("fd", ctypes.c_uint64), ("operations", ctypes.c_void_p)]
for name in ("DriverOpen", "HandleRegister", "BufRegister", "SetStatsLevel", "StatsStart",
             "GetStatsL3"):
    getattr(cufile, "cuFile" + name).restype = Status
cufile.cuFileRead.restype = ctypes.c_ssize_t
cufile.cuFileRead.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int64,
                              ctypes.c_int64]
cuda.cuMemcpyHtoDAsync_v2.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t,
                                      ctypes.c_void_p]
cuda.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
cuda.cuStreamCreate.argtypes = [ctypes.c_void_p, ctypes.c_uint]
cuda.cuStreamSynchronize.argtypes = [ctypes.c_void_p]
cuda.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
context, memory, stream, handle = (ctypes.c_void_p() for _ in range(4))
"""
OPENED = """
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(8192)) == 0
"""
READ = """
fd = os.open(sys.argv[1], os.O_RDONLY)
assert cufile.cuFileDriverOpen().err == 0
cufile.cuFileSetStatsLevel(3)
cufile.cuFileStatsStart()
registered = cufile.cuFileHandleRegister(
    ctypes.byref(handle), ctypes.byref(Descriptor(1, fd, None))).err
results = [cufile.cuFileRead(handle, memory.value, 4096, 0, 4096) for _ in range(4)]
version = ctypes.c_int()
cufile.cuFileGetVersion(ctypes.byref(version))
words = (ctypes.c_uint64 * 1024)()
assert cufile.cuFileGetStatsL3(words).err == 0
first = (78 if version.value >= 1200 else 64) + 64 + 1 + 2
back = ctypes.create_string_buffer(4096)
cuda.cuMemcpyDtoH_v2(back, memory.value + 4096, 4096)
print(json.dumps({"registered": registered, "results": results, "gpu": words[first:first + 13],
                  "bytes": back.raw[:4].hex()}))
"""


def run(text: str, environment: dict[str, str], *arguments: Path) -> dict[str, object]:
    """Run a program against the stubs and return what it printed."""
    command = [sys.executable, "-c", text, *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    values: dict[str, object] = json.loads(done.stdout)
    return values


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of 4096 bytes."""
    path = tmp_path / "file"
    path.write_bytes(b"\x0a\x0b\x0c\x0d" * 1024)
    return path


def test_a_copy_is_done_when_its_stream_is_waited_for(stub_environment: dict[str, str]) -> None:
    text = """
source = ctypes.create_string_buffer(b"first", 4096)
cuda.cuStreamCreate(ctypes.byref(stream), 1)
cuda.cuMemcpyHtoDAsync_v2(memory.value, source, 4096, stream)
source.value = b"second"
cuda.cuStreamSynchronize(stream)
back = ctypes.create_string_buffer(4096)
cuda.cuMemcpyDtoH_v2(back, memory.value, 4096)
print(json.dumps({"bytes": back.value.decode()}))
"""
    assert run(PROGRAM + OPENED + text, stub_environment) == {"bytes": "second"}


@pytest.mark.parametrize("version", ["1150", "1200"])
@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("posix", [4, 0, 0, 4, 0, 0]),
        ("p2p", [4, 4, 0, 0, 0, 0]),
        ("nvfs", [4, 0, 4, 0, 0, 0]),
        ("mixed", [4, 2, 0, 2, 0, 0]),
        ("peer", [4, 4, 0, 0, 0, 4]),
        ("none", [0, 0, 0, 0, 0, 0]),
    ],
)
def test_reads_are_counted_by_path_in_the_layout_of_the_version(
    path: str, counts: list[int], version: str, stub_environment: dict[str, str], file: Path
) -> None:
    how = {"STUB_CUFILE_PATH": path, "STUB_CUFILE_VERSION": version}
    done = run(PROGRAM + OPENED + READ, {**stub_environment, **how}, file)
    gpu = done["gpu"]
    assert isinstance(gpu, list)
    assert gpu[4:10] == counts
    assert done["results"] == [4096] * 4
    assert done["bytes"] == "0a0b0c0d"


def test_zeros_and_failures_are_as_asked(stub_environment: dict[str, str], file: Path) -> None:
    how = {"STUB_CUFILE_ZEROS": "1", "STUB_CUFILE_FAIL_EVERY": "4"}
    done = run(PROGRAM + OPENED + READ, {**stub_environment, **how}, file)
    assert done["results"] == [4096, 4096, 4096, -1]
    assert done["bytes"] == "00000000"


def test_a_lost_gpu_fails_every_call_from_then_on(stub_environment: dict[str, str]) -> None:
    text = """
back = ctypes.create_string_buffer(4096)
codes = [cuda.cuMemcpyDtoH_v2(back, memory.value, 4096) for _ in range(3)]
print(json.dumps({"codes": [*codes, cuda.cuStreamSynchronize(None)]}))
"""
    done = run(PROGRAM + OPENED + text, {**stub_environment, "STUB_CUDA_LOSE_AFTER": "2"})
    assert done == {"codes": [0, 999, 999, 999]}
