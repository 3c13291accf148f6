"""Overrides as a user types them: any text without quotes, refused if it can't be a setting.

Hydra accepts only ASCII outside of quotes, and reads ``true`` or ``1e3`` as a value. Text that it
would refuse or change is quoted here first.
"""

from __future__ import annotations

import re

from wattload.core.errors import ConfigError
from wattload.core.settings import shown

_TEXT_KEYS = frozenset({"label", "runs", "target.serial", "target.overwrite", "loader.engine"})
"""Settings whose value is text, even if it looks like a number, or like no value (null)."""

_ELEMENT = re.compile(
    r"""\s*'(?:\\.|[^'\\])*'|\s*"(?:\\.|[^"\\])*"|\$\{[^}]*\}|[^,\[\]{}()]+""", re.DOTALL
)
_PLAIN = re.compile(r"[A-Za-z0-9_./:,\[\]@%+ -]*")
"""Values that Hydra's grammar accepts as they are."""
_WORD = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")
_KEYWORDS = frozenset({"true", "false", "null", "nan", "inf", "+inf", "-inf"})


def quote_text(override: str) -> str:
    """Return an override in Hydra's grammar: text outside of it is quoted.

    Raises:
        ConfigError: it is not UTF-8.
    """
    _refuse_other_encodings(override)
    key, equals, value = override.partition("=")
    if not equals:
        return override
    name = key.strip()
    quoted = _ELEMENT.sub(lambda found: _quoted_element(name, found.group()), value)
    if _PLAIN.fullmatch(quoted) or _is_parsed(f"{key}={quoted}"):
        return f"{key}={quoted}"
    whole = f"{key}={_quoted(value.strip())}"
    return whole if _is_parsed(whole) else override


def override_of(key: str, text: str) -> str:
    """Return the override that sets a key to exactly this text."""
    return f"{key}={_quoted_element(key, text) if _WORD.fullmatch(text) else _quoted(text)}"


def plain_text(value: str) -> str:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if value[:1] not in ("'", '"') or not _is_parsed(f"label={value}"):
        return value
    return str(OverridesParser.create().parse_override(f"label={value}").value())


def _refuse_other_encodings(override: str) -> None:
    try:
        override.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{shown(override)} is not valid UTF-8; write settings and paths in UTF-8"
        ) from None


def _quoted_element(key: str, element: str) -> str:
    """Return an element of a value, quoted if Hydra would refuse it or read it as no text."""
    text = element.strip()
    if not text or text[0] in "'\"$":
        return element
    changed = key in _TEXT_KEYS and (
        not _WORD.fullmatch(text) or text.lower() in _KEYWORDS or not text.isprintable()
    )
    if not changed and text.isascii() and text.isprintable() and not set(text) & set("'\""):
        return element
    return _quoted(text)


def _quoted(text: str) -> str:
    from hydra.core.override_parser.types import Quote, QuotedString

    return str(QuotedString(text=text, quote=Quote.single).with_quotes())


def _is_parsed(override: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(override)
    except (HydraException, ValueError, RecursionError):
        return False
    return True
