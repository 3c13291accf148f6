"""loader=direct: which engine a configuration gets, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wattload.core.errors import ConfigError, MissingExtraError
from wattload.loaders.direct.config import Config, open_engine
from wattload.loaders.engine import library
from wattload.loaders.engine.engine import IOEngine


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_bytes": 0}, r"loader\.block_bytes must be a multiple of 4096"),
        ({"block_bytes": 1000}, r"loader\.block_bytes must be a multiple of 4096"),
        ({"block_bytes": 2 << 30}, r"loader\.block_bytes must be a multiple of 4096"),
        ({"queue_depth": 0}, r"loader\.queue_depth must be 1 to 1024, got 0"),
        ({"queue_depth": 5000}, r"loader\.queue_depth must be"),
        ({"pollers": 0}, r"loader\.pollers must be 1 to 64, got 0"),
        (
            {"engine": "libaio"},
            r"loader\.engine must be one of auto, io_uring, pread, got",
        ),
        ({"workers": 0}, r"loader\.workers must be 1 to 1024"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_engine(Config(**settings))


@pytest.mark.parametrize("diskless", [False, True])
def test_auto_takes_the_native_engine(diskless: bool) -> None:
    engine = open_engine(Config(block_bytes=65536, queue_depth=2, pollers=2), diskless=diskless)
    assert isinstance(engine, IOEngine)
    assert engine.path().path_requested == (library.NULL if diskless else "o_direct")
    assert engine.path().engine
    engine.close()


def test_where_nothing_was_built_auto_is_an_error_and_no_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "library_path", lambda: tmp_path / "none.so")
    library.load.cache_clear()
    try:
        for needed in (Config().require_checkpoint_library, lambda: open_engine(Config())):
            with pytest.raises(MissingExtraError, match="`make setup`"):
                needed()
    finally:
        library.load.cache_clear()
