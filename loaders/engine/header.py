"""The engine's C header, read: constants, structures and functions as ctypes takes them.

The header declares them once; Python reads them from there. Its C is a small part of
the language: numbers, ``typedef struct`` without bit fields, and functions marked ``WL_API``.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any

SOURCES = Path(__file__).with_name("src")
FILES = (
    "histogram.h",
    "wattload_engine.h",
    "stamps.h",
    "crc32.h",
    "positioned.h",
    "records.h",
    "vectors.h",
    "search.h",
)
"""The interface, and what it includes."""

_SCALARS: dict[str, Any] = {
    "char": ctypes.c_char,
    "float": ctypes.c_float,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DEFINE = re.compile(r"#define (WL_\w+) (\w+)$", re.MULTILINE)
_ENUM = re.compile(r"enum \{([^}]*)\};")
_STRUCT = re.compile(r"typedef struct \{([^}]*)\} (\w+);")
_FUNCTION = re.compile(r"WL_API ([\w\s]+ \**)(wl_\w+)\(([^)]*)\);")
_DECLARATION = re.compile(r"(?:const )?(\w+) (.*)", re.DOTALL)
_NAME = re.compile(r"(\**)(?:const )?(\w+)((?:\[\w+\])*)")

_structs: dict[str, type[ctypes.Structure]] = {}
_making = RLock()


@cache
def _text() -> str:
    return _COMMENT.sub("", "\n".join((SOURCES / name).read_text("utf-8") for name in FILES))


@cache
def constants() -> dict[str, int]:
    """Return the numbers of all macros and enumerations, by name."""
    found = {name: int(value.rstrip("u"), 0) for name, value in _DEFINE.findall(_text())}
    for body in _ENUM.findall(_text()):
        for entry in filter(None, map(str.strip, body.split(","))):
            name, expression = entry.split(" = ")
            found[name] = _value(expression, found)
    return found


def struct(name: str) -> type[ctypes.Structure]:
    """Return a structure; its fields have the names of the header's.

    Pointers to characters take ``bytes``, those to structures an array of ctypes, and any other
    pointer an address: of memory that has to outlive its use. All threads get the same type: a
    function takes no other one of that name, and ``cache`` may make two at once.
    """
    with _making:
        if name not in _structs:
            body = {name: body for body, name in _STRUCT.findall(_text())}[name]
            _structs[name] = type(name, (ctypes.Structure,), {"_fields_": tuple(_fields(body))})
        return _structs[name]


def setup_of(name: str, **fields: Any) -> ctypes.Structure:
    """Return a structure whose first field is its size."""
    return struct(name)(struct_bytes=ctypes.sizeof(struct(name)), **fields)


def array_of(name: str, rows: Iterable[tuple[Any, ...]]) -> ctypes.Array[ctypes.Structure]:
    """Return structures with these values of their fields; keep them while they are used."""
    made = [struct(name)(*row) for row in rows]
    return (struct(name) * len(made))(*made)


def prototypes() -> Iterator[tuple[str, list[Any], Any]]:
    """Yield each function: its name, and the types of its arguments and of its result.

    Any address passes for a pointer to numbers, for a structure only one of its own type.
    """
    for result, name, arguments in _FUNCTION.findall(_text()):
        types = [_argument(each.strip()) for each in arguments.split(",") if each.strip() != "void"]
        yield name, types, _result(result.strip())


def _value(expression: str, known: dict[str, int]) -> int:
    """Return the value of a number, or of a product and a sum of numbers and constants."""
    total = 0
    for term in expression.split(" + "):
        product = 1
        for factor in term.split(" * "):
            product *= known[factor] if factor in known else int(factor, 0)
        total += product
    return total


def _is_struct(kind: str) -> bool:
    return f"}} {kind};" in _text()


def _fields(body: str) -> Iterator[tuple[str, Any]]:
    for line in filter(None, map(str.strip, body.split(";"))):
        kind, names = _parts(line)
        for each in names.split(","):
            stars, name, sizes = _named(each.strip())
            found: Any = _pointer(kind) if stars else _plain(kind)
            for size in reversed(re.findall(r"\w+", sizes)):
                found *= constants().get(size) or int(size)
            yield name, found


def _argument(text: str) -> Any:  # noqa: ANN401 - a type of ctypes
    kind, name = _parts(text)
    stars, _, sizes = _named(name)
    if stars == "*":
        return _pointer(kind)
    return ctypes.c_void_p if stars or sizes else _plain(kind)


def _result(text: str) -> Any:  # noqa: ANN401 - a type of ctypes
    if text == "void":
        return None
    kind = text.removeprefix("const ").rstrip("* ")
    if not text.endswith("*"):
        return _plain(kind)
    return ctypes.POINTER(_SCALARS[kind]) if kind in _SCALARS and kind != "char" else _pointer(kind)


def _parts(text: str) -> tuple[str, str]:
    found = _DECLARATION.fullmatch(text)
    assert found is not None, text
    return found[1], found[2]


def _named(text: str) -> tuple[str, str, str]:
    found = _NAME.fullmatch(text)
    assert found is not None, text
    return found[1], found[2], found[3]


def _plain(kind: str) -> Any:  # noqa: ANN401 - a type of ctypes
    return _SCALARS.get(kind) or struct(kind)


def _pointer(kind: str) -> Any:  # noqa: ANN401 - a type of ctypes
    if kind == "char":
        return ctypes.c_char_p
    return ctypes.POINTER(struct(kind)) if _is_struct(kind) else ctypes.c_void_p
