"""What this host has for reads into GPU memory: the driver, its GPUs, and cuFile.

It is asked in a process of its own: libcufile 1.20 does not return where there is no CUDA device,
and a driver that was opened stays in its process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wattload.core.errors import ConfigError, RunError, WattloadError
from wattload.loaders.engine import library
from wattload.loaders.gpu import failures
from wattload.loaders.gpu.native import NativeError
from wattload.loaders.gpu.process import ENGINE, Child, environment_of
from wattload.loaders.gpu.serving import Request

TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class ProbedGpu:
    """A GPU that CUDA shows: its PCI address, such as ``0000:65:00.0``, and its name."""

    address: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The CUDA version of the driver, the GPUs by number, and libcufile.

    ``cufile_refusal`` is why cuFile can't be used, ``None`` if its driver was opened.
    ``cufile`` is its version, ``None`` without cuFile or if it does not say.
    """

    cuda: str
    gpus: tuple[ProbedGpu, ...]
    cufile: str | None
    cufile_refusal: WattloadError | None


def probe(*, with_cufile: bool = True) -> Probe:
    """Return what CUDA and cuFile say, in a second or so; cuFile gets 20 s.

    Raises:
        ConfigError: there is no CUDA driver, no GPU, or neither answers.
        RunError: the process that asked ended.
    """
    # CUDA first and alone, so that a cuFile that hangs does not hide what CUDA says.
    found = _ask("cuda")
    gpus = tuple(ProbedGpu(*each) for each in found["gpus"])
    cuda = str(found["cuda"])
    if not gpus:
        raise ConfigError(
            "CUDA shows no GPU: check nvidia-smi, and CUDA_VISIBLE_DEVICES in the environment"
        )
    if not with_cufile:
        return Probe(cuda=cuda, gpus=gpus, cufile=None, cufile_refusal=None)
    try:
        answer = _ask("cufile")
    except (ConfigError, RunError) as error:
        return Probe(cuda=cuda, gpus=gpus, cufile=None, cufile_refusal=error)
    failed = answer["cufile_error"]
    refusal = None if failed is None else _refusal(failed)
    return Probe(cuda=cuda, gpus=gpus, cufile=answer["cufile"], cufile_refusal=refusal)


def _ask(what: str) -> dict[str, Any]:
    child = Child(Request(ENGINE, (what,), is_probe=True), environment_of())
    subject = "the CUDA driver"
    try:
        message = child.receive(TIMEOUT_S)
        if message and message.kind == "opening":
            subject = f"libcufile {message.value or 'of an unknown version'}"
            message = child.receive(TIMEOUT_S)
    finally:
        child.close()
    if message is None:
        raise ConfigError(
            f"{subject} did not answer in {TIMEOUT_S:.0f} s; check nvidia-smi and the kernel log"
            + (", and try another version of cuFile, or loader=bounce" if what == "cufile" else "")
        )
    if message.kind == "error":
        raise _refusal(message.value)
    found: dict[str, Any] = message.value
    return found


def _refusal(error: NativeError) -> WattloadError:
    if error.code == library.NO_LIBRARY:
        return failures.missing_library(error.text)
    if error.code == library.CUFILE:
        return failures.cufile_refusal(error.detail, "")
    return ConfigError(f"CUDA refuses: {error.text}; check the GPU with nvidia-smi")
