"""What names a machine, a person or a place in a text, whether or not a record says what it is.

Each pattern is a group that is called by the kind of mask that stands for what it finds.
"""

from __future__ import annotations

import re

_BEFORE, _AFTER = "(?<![0-9A-Za-z])", "(?![0-9A-Za-z])"
_NO_PATH = r"\s\"'`,;:()\[\]{}<>|="
_HEX = "[0-9a-f]"

_SERIALS = (
    rf"{_BEFORE}nqn\.\d{{4}}-\d\d\.[^\s\"'`,;()\[\]{{}}<>|=]+",
    rf"{_BEFORE}(?:GPU-|MIG-)?{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}{_AFTER}",
    rf"{_BEFORE}(?:eui|nguid|uuid|naa|wwn|nvme)[.-](?:0x)?{_HEX}{{16,32}}{_AFTER}",
    # An EUI-64 or an NGUID by itself; digits alone are a count.
    rf"{_BEFORE}(?:0x)?(?=[0-9]*[a-f])(?:{_HEX}{{32}}|{_HEX}{{16}}){_AFTER}",
    # PARTUUID of an MBR, and any file system's after its name: FAT has ABCD-1234.
    rf"{_BEFORE}(?=[0-9]*[a-f]){_HEX}{{8}}-{_HEX}{{2}}(?![0-9A-Za-z-])",
    rf"(?:(?<=uuid=)|(?<=uuid:)|(?<=uuid )|(?<=uuid: )){_HEX}[0-9a-f-]{{3,}}{_AFTER}",
)
_ADDRESSES = (
    r"(?<![\w+.-])[a-z][a-z0-9+.-]*://[^\s\"'`<>|]+",
    r"(?<![\w.+-])[\w.+-]+@(?=[a-z])[\w-]+(?:\.[\w-]+)*",
    rf"(?<![0-9A-Za-z:-])(?:{_HEX}{{2}}[:-]){{5,19}}{_HEX}{{2}}(?![0-9A-Za-z:-])",
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)",
    rf"(?<![\w:.])(?:{_HEX}{{1,4}}:){{4,7}}{_HEX}{{1,4}}(?![\w:])",
    rf"(?<![\w:.])(?:{_HEX}{{1,4}}:){{1,7}}:(?:{_HEX}{{1,4}}(?::{_HEX}{{1,4}}){{0,6}})?(?![\w:])",
    r"(?:(?<=user=)|(?<=username=)|(?<=domain=)|(?<=hostname=))[^\s,;\"']+",
)
_PATHS = (
    rf"(?<![\w./~-])(?:~[\w.-]*)?/[^{_NO_PATH}]+",
    rf"(?<![\w./~-])\.\.?/[^{_NO_PATH}]+",
    rf"{_BEFORE}[a-z]:\\[^{_NO_PATH}]*",
    rf"(?<![\w\\])\\\\[\w.$-]+\\[^{_NO_PATH}]*",
)

NUMBERS = f"(?P<serial>(?i:{'|'.join(_SERIALS)}))|(?P<address>(?i:{'|'.join(_ADDRESSES)}))"
"""Ids of drives, partitions and devices; addresses, with who is at one."""

PATHS = f"(?P<path>(?i:{'|'.join(_PATHS)}))"
"""Paths from a root, a home, a drive letter, or the folder where a run was started."""

MASK = re.compile(r"(?:host|domain|serial|path|address)-\d+")
"""What masks look like."""

RELATIVE = (
    rf"(?<![\w./~\\@-])(?!{MASK.pattern})(?!\w{{1,5}}/\w{{1,2}}(?![\w/]))"
    r"[\w.@%+-]+(?:/[\w.@%+-]+)+/?"
)
"""A path without a root, such as ``mine/runs``: only where settings stand, as prose has such words.

It is no unit (``MB/s``) and no mask.
"""
