"""The kernels compile for every architecture without a GPU, once for each source."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from wattload.core.errors import ConfigError, MissingExtraError, RunError
from wattload.core.sysfs import Roots
from wattload.loaders.gpu_queue.kernels import (
    FEATURE_ROWS,
    RANDOM_READ,
    Program,
    cache_folder,
    compiled,
)

FUNCTIONS = {
    RANDOM_READ: (b"random_read", b"random_pull"),
    FEATURE_ROWS: (b"split_rows", b"gather_rows", b"pull_rows"),
}
ELF = b"\x7fELF"


def has_nvrtc() -> bool:
    try:
        return find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:
        return False


needs_nvrtc = pytest.mark.skipif(
    not has_nvrtc(), reason="cuda-bindings and NVRTC are not installed: make loaders adds them"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of compiled kernels, below one of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/wattload/kernels"


def driver(folder: Path, version: str) -> Roots:
    """Return a host with a driver of NVIDIA."""
    file = folder / "proc/driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n"
    )
    return Roots(sys=folder / "sys", proc=folder / "proc", top=folder)


@needs_nvrtc
@pytest.mark.parametrize("source", FUNCTIONS)
@pytest.mark.parametrize(
    "architecture",
    [
        "sm_75",
        pytest.param("sm_80", marks=pytest.mark.thorough),
        pytest.param("sm_90", marks=pytest.mark.thorough),
        "sm_100",
    ],
)
def test_kernels_compile_without_a_gpu(architecture: str, source: str) -> None:
    image = compiled(architecture, Program.packaged(source))
    assert image.startswith(ELF)
    assert all(name in image for name in FUNCTIONS[source])


@needs_nvrtc
def test_what_the_cache_holds_is_not_compiled_again(cache: Path) -> None:
    compiled("sm_90")
    (file,) = cache.iterdir()
    file.write_bytes(b"kept")
    assert compiled("sm_90") == b"kept"
    assert compiled("sm_80").startswith(ELF)
    assert len(list(cache.iterdir())) == 2


@needs_nvrtc
@pytest.mark.parametrize("changed", ["source", "types.h"])
def test_a_changed_source_is_compiled_anew(cache: Path, changed: str) -> None:
    own = Program.packaged()
    compiled("sm_90", own)
    (file,) = cache.iterdir()
    file.write_bytes(b"kept")
    comment = b"\n/* another */\n"
    if changed == "source":
        other = Program(own.source + comment, own.headers)
    else:
        other = Program(own.source, {**own.headers, changed: own.headers[changed] + comment})
    assert compiled("sm_90", other).startswith(ELF)
    assert compiled("sm_90", own) == b"kept"


@needs_nvrtc
def test_a_cache_that_is_not_ours_alone_is_left_alone(cache: Path, tmp_path: Path) -> None:
    compiled("sm_90")
    (file,) = cache.iterdir()
    file.write_bytes(b"planted")
    cache.chmod(0o777)
    assert compiled("sm_90").startswith(ELF)
    assert file.read_bytes() == b"planted"


@needs_nvrtc
def test_an_error_of_the_source_keeps_the_compilers_log(cache: Path) -> None:
    own = Program.packaged()
    with pytest.raises(RunError, match=r"(?s)for sm_90 .*random_read.cu\(\d+\): error: .*nothing"):
        compiled("sm_90", Program(own.source + b"\nint x = nothing;\n", own.headers))
    assert not cache.exists()


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_35", "compute_90", "90"])
def test_an_unknown_architecture_is_refused_with_those_that_there_are(architecture: str) -> None:
    with pytest.raises(ConfigError, match=rf"sm_75 to sm_\d+, not for {architecture}: install"):
        compiled(architecture)


@needs_nvrtc
def test_a_driver_older_than_the_compiler_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"CUDA 13 need .* driver 580 or newer, here is 570\.86"):
        compiled("sm_90", roots=driver(tmp_path / "old", "570.86.15"))
    assert compiled("sm_90", roots=driver(tmp_path / "new", "580.65.06")).startswith(ELF)


def test_a_missing_extra_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    wanted = r"needs cuda-bindings and NVRTC, .* install .*\[cuda\].*or use loader.requester=cpu"
    with pytest.raises(MissingExtraError, match=wanted):
        compiled("sm_90")


def test_bindings_without_a_library_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version() -> None:
        raise RuntimeError('Failure finding "libnvrtc.so.13"')

    bindings = ModuleType("cuda.bindings")
    bindings.nvrtc = SimpleNamespace(nvrtcVersion=version)  # type: ignore[attr-defined]  # a made-up module
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    with pytest.raises(MissingExtraError, match=r"needs NVRTC, which is not .*\[cuda\]"):
        compiled("sm_90")


def test_the_cache_is_where_the_desktop_standard_puts_it() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/wattload/kernels")
    assert cache_folder({}) == Path.home() / ".cache/wattload/kernels"
