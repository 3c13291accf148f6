"""The kernels of the ``.cu`` files, compiled for a GPU at run time and kept in the user's cache.

NVRTC compiles CUDA C++ without a toolkit, a GPU or a driver. It is a library of the package
``nvidia-cuda-nvrtc``, called through ``cuda-bindings``; the extra ``cuda`` has both. What comes out
is machine code for one architecture, which the engine loads by CUDA's driver.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from wattload.core.errors import ConfigError, DataError, MissingExtraError, RunError
from wattload.core.files import choose_folder
from wattload.core.home import user_folder
from wattload.core.sysfs import LIVE, Roots, read_text
from wattload.core.workload import Requirement, missing_error
from wattload.loaders.engine import library

RANDOM_READ, FEATURE_ROWS = "random_read.cu", "feature_rows.cu"
ENGINE_HEADERS = ("queue_abi.h", "rows_abi.h", "histogram.h", "types.h")
"""Those of the engine that the sources include."""

OWN_HEADERS = ("memory.cuh", "cache.cuh", "queue.cuh")
"""Those beside the source."""

BINDINGS = Requirement(module="cuda.bindings.nvrtc", software="cuda-bindings", extra="cuda")
NVRTC = Requirement(module="nvidia.cu13", software="NVRTC", extra="cuda")

OPTIONS = ("--device-as-default-execution-space", "--std=c++17", "-lineinfo")
"""The headers are C for the engine: their functions get no ``__device__`` there."""

NEEDED_DRIVERS = {12: 525, 13: 580}
"""The oldest driver that loads machine code of a CUDA version (CUDA Compatibility, 2.1)."""

_DRIVER = re.compile(r"\b(\d{3,})\.[\d.]+")
_ARCHITECTURE = re.compile(r"sm_(\d+)")


@dataclass(frozen=True, slots=True)
class Program:
    """A CUDA source, and the headers it includes by their names."""

    source: bytes
    headers: Mapping[str, bytes]
    name: str = RANDOM_READ

    @classmethod
    def packaged(cls, name: str = RANDOM_READ) -> Program:
        own, engine = Path(__file__).parent, library.library_path().with_name("src")
        paths = [own / name for name in OWN_HEADERS] + [engine / name for name in ENGINE_HEADERS]
        headers = {path.name: path.read_bytes() for path in paths}
        return cls((own / name).read_bytes(), headers, name)


def compiled(architecture: str, program: Program | None = None, *, roots: Roots = LIVE) -> bytes:
    """Return the machine code of the kernels for an architecture such as ``sm_90``.

    It takes about a second, or 20 ms where the cache has it: ``XDG_CACHE_HOME/wattload/kernels``,
    by a hash of the source and its headers, the architecture and the version of NVRTC. A cache
    that can't be used is left alone.

    Raises:
        ConfigError: this NVRTC compiles for no such architecture, or the host's driver is too old
            for what it makes.
        MissingExtraError: ``cuda-bindings`` or NVRTC is not installed.
        RunError: the source does not compile; the message has NVRTC's log.
    """
    program = Program.packaged() if program is None else program
    nvrtc, version = _nvrtc()
    _check_driver(version, roots)
    _check_architecture(nvrtc, architecture, version)
    folder, name = cache_folder(), _file_name(program, architecture, version)
    cached = _cached(folder, name)
    if cached is None:
        cached = _compile(nvrtc, program, architecture, version)
        _store(folder, name, cached)
    return cached


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of compiled kernels, which need not exist (XDG Base Directory)."""
    return user_folder("XDG_CACHE_HOME", ".cache", environment) / "kernels"


def _nvrtc() -> tuple[ModuleType, str]:
    """Return the bindings of NVRTC, and its version such as ``13.5``."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise _missing(BINDINGS, NVRTC) from error
    try:
        major, minor = _call(nvrtc, nvrtc.nvrtcVersion)
    except RuntimeError as error:  # what the bindings raise where there is no library
        if isinstance(error, RunError):
            raise
        raise _missing(NVRTC) from error
    return nvrtc, f"{major}.{minor}"


def _missing(*requirements: Requirement) -> MissingExtraError:
    return missing_error(requirements, user="loader=gpu_queue", alternative="loader.requester=cpu")


def _call(nvrtc: ModuleType, function: Callable[..., Any], *arguments: object) -> list[Any]:
    result: tuple[Any, ...] = function(*arguments)
    code, *values = result
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RunError(f"NVRTC: {function.__name__} failed: {code.name}")
    return values


def _check_driver(version: str, roots: Roots) -> None:
    """Raise for a driver that is older than NVRTC's CUDA; a host without one may compile."""
    major = int(version.partition(".")[0])
    needed = NEEDED_DRIVERS.get(major)
    text = ""
    with suppress(OSError):
        text = read_text(roots.proc / "driver/nvidia/version")
    found = _DRIVER.search(text)
    if needed is not None and found is not None and int(found[1]) < needed:
        raise ConfigError(
            f"kernels of CUDA {major} need NVIDIA's driver {needed} or newer, here is {found[0]}: "
            f"update the driver, install an NVRTC that fits it (pip install "
            f"'cuda-bindings<{major}' nvidia-cuda-nvrtc-cu{major - 1}), or use loader.requester=cpu"
        )


def _check_architecture(nvrtc: ModuleType, architecture: str, version: str) -> None:
    (known,) = _call(nvrtc, nvrtc.nvrtcGetSupportedArchs)
    found = _ARCHITECTURE.fullmatch(architecture)
    if found is None or int(found[1]) not in known:
        raise ConfigError(
            f"NVRTC {version} compiles for sm_{min(known)} to sm_{max(known)}, not for "
            f"{architecture}: install an NVRTC that knows this GPU, or use loader.requester=cpu"
        )


def _file_name(program: Program, architecture: str, version: str) -> str:
    digest = hashlib.sha256()
    parts = {"options": " ".join(OPTIONS).encode(), program.name: program.source, **program.headers}
    for name, content in parts.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return f"{architecture}-nvrtc{version}-{digest.hexdigest()}.cubin"


def _cached(folder: Path, name: str) -> bytes | None:
    with (
        suppress(OSError, DataError),
        choose_folder(folder.parent.parent) as base,
        base.enter(*folder.parts[-2:]) as kernels,
    ):
        return kernels.read(name)
    return None


def _store(folder: Path, name: str, image: bytes) -> None:
    with suppress(OSError, DataError):
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        with (
            choose_folder(folder.parent.parent) as base,
            base.make(folder.parent.name) as own,
            own.make(folder.name) as kernels,
        ):
            kernels.write(name, image)


def _compile(nvrtc: ModuleType, program: Program, architecture: str, version: str) -> bytes:
    names = [name.encode() for name in program.headers]
    contents = list(program.headers.values())
    (handle,) = _call(
        nvrtc,
        nvrtc.nvrtcCreateProgram,
        program.source,
        program.name.encode(),
        len(names),
        contents,
        names,
    )
    try:
        options = [f"--gpu-architecture={architecture}".encode(), *(o.encode() for o in OPTIONS)]
        (code,) = nvrtc.nvrtcCompileProgram(handle, len(options), options)
        if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _read(nvrtc, handle, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            raise RunError(
                f"NVRTC {version} does not compile {program.name} for {architecture} "
                f"({code.name}): {log.decode(errors='replace').strip(chr(0)).strip()}"
            )
        return _read(nvrtc, handle, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    finally:
        nvrtc.nvrtcDestroyProgram(handle)


def _read(
    nvrtc: ModuleType, handle: object, size_of: Callable[..., Any], copy: Callable[..., Any]
) -> bytes:
    (size_bytes,) = _call(nvrtc, size_of, handle)
    memory = bytes(size_bytes)  # the bindings write into it
    _call(nvrtc, copy, handle, memory)
    return memory
