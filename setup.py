"""The part of the build that pyproject.toml can't say: the I/O engine, a plain shared library.

It is loaded by ctypes and knows nothing of Python, so one build serves every Python 3 of a platform
and the wheel is tagged ``py3-none-<platform>``.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import PlatformError

LINKS = ("workloads", "loaders", "power", "reports", "configs")
FOLDER = Path("wattload/loaders/engine")
NAME = "wattload.loaders.engine.libwattload_engine"


def require_links() -> None:
    """Raise ``PlatformError`` for a tree whose links were unpacked as text: it has no packages."""
    broken = [f"wattload/{name}" for name in LINKS if not Path("wattload", name).is_dir()]
    if broken:
        raise PlatformError(
            f"{', '.join(broken)}: not a link to a folder; the tool that unpacked this tree (often "
            "a zip) turned symbolic links into text files: use git clone or the .tar.gz instead"
        )


def sources_hash() -> str:
    """Return what ``wattload.loaders.engine.library`` compares with the sources beside it."""
    digest = hashlib.sha256()
    for path in sorted((FOLDER / "src").glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class BuildLibrary(build_ext):
    """Builds ``libwattload_engine.so``: no suffix of a Python, no symbol that one looks for."""

    def build_extensions(self) -> None:
        """Build it, or say what is missing; the flags are the interpreter's own but for ours."""
        name = self.compiler.compiler_so[0]
        if shutil.which(name) is None:
            raise PlatformError(
                f"the I/O engine is written in C and the compiler {name!r} is not here: install "
                "one (apt-get install gcc libc6-dev, dnf install gcc, apk add gcc musl-dev), or "
                "name yours with CC="
            )
        self.force = True  # no time of a file says that one has gone
        super().build_extensions()

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """Return none: the source says what is visible."""
        return []


class PlatformWheel(bdist_wheel):
    """A wheel for any Python 3 of one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


require_links()
setup(
    ext_modules=[
        Extension(
            NAME,
            sources=sorted(str(path) for path in (FOLDER / "src").glob("*.c")),
            depends=sorted(str(path) for path in (FOLDER / "src").glob("*.h")),
            define_macros=[("_GNU_SOURCE", "1"), ("WL_SOURCES", f'"{sources_hash()}"')],
            # Without fused multiply-add, synthetic data is the same on every machine.
            extra_compile_args=[
                *("-std=c11", "-O3", "-ffp-contract=off", "-fvisibility=hidden"),
                *("-Wall", "-Wextra"),
            ],
            extra_link_args=["-pthread", "-ldl"],
        )
    ],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
)
