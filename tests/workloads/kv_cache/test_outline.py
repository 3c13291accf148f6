"""The arithmetic of a cache: bytes, files, wear, and what a rate and a power mean, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wattload.__main__ import main
from wattload.results.kv_cache.facts import Layout
from wattload.workloads.kv_cache.config import Config
from wattload.workloads.kv_cache.outline import at_rate, outline

Captured = pytest.CaptureFixture[str]
OPEN = ("scale=demo", "workload.arrivals=open", "workload.request_rate=2")


@pytest.fixture(autouse=True)
def no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATTLOAD_TARGET", raising=False)


def said(capsys: Captured, *words: str) -> str:
    assert main(["plan", "kv_cache", *words]) == 0
    return capsys.readouterr().out


def document(capsys: Captured, *words: str) -> dict[str, Any]:
    found = json.loads(said(capsys, *words, "--json"))
    assert isinstance(found, dict)
    return found


def refused(capsys: Captured, *words: str) -> str:
    assert main(["plan", "kv_cache", *words]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    return message


def test_the_worked_example(capsys: Captured) -> None:
    """126 layers x 2 x 8 heads x 128 x 2 bytes = 516,096; 6.3e9 / 516,096 = 12,207; 18 W / that."""
    text = said(capsys, "workload.model=llama3.1-405b", "rate=6.3", "power_w=18")
    assert "model   llama3.1-405b, 516,096 bytes a token" in text
    assert "block   256 tokens: 132,120,576 bytes, in 1 file" in text
    assert "cache   162 blocks of 132.12 MB, 21.40 GB in all" in text
    assert "25.68 GB to fill it and evict 20 %" in text
    assert "wear    not applicable: unpaced" in text
    assert "rate    6.30 GB/s, given" in text
    assert "restore 12,207 tokens/s = rate x 256 tokens / 132,120,576 bytes" in text
    assert "token   1.475 mJ per restored token" in text


def test_bytes_in_all_are_the_sum_of_what_each_phase_stores(capsys: Captured) -> None:
    found = document(capsys, *OPEN)
    assert found["fill_bytes"] == round(1.2 * 170 * (6 << 20))
    assert (16 << 30) <= found["alone_bytes"] < (16 << 30) + (6 << 20)
    total_bytes = found["fill_bytes"] + found["mix_bytes"] + found["alone_bytes"]
    text = said(capsys, *OPEN)
    assert f"at most {total_bytes / 1e9:.2f} GB: " in text
    assert f"wear    at most {found['daily_bytes'] / 1e12:.2f} TB a day, " in text


def test_wear_grows_with_the_rate_of_requests(capsys: Captured) -> None:
    once = document(capsys, *OPEN)["daily_bytes"]
    twice = document(capsys, *OPEN[:2], "workload.request_rate=4")["daily_bytes"]
    assert 1.5 < twice / once < 3, "and more misses, as more conversations share the cache"
    assert document(capsys, *OPEN, "workload.admission=none")["daily_bytes"] == 0


def test_padding_and_copies_are_moved_and_not_restored() -> None:
    """576 x 2 x 16 = 18,432 bytes a layer, moved as 20,480; 61 layers on each of 8 ranks."""
    config = Config(layout=Layout.layer, model="deepseek-v3", tp=8, block_tokens=16)

    found = at_rate(config, rate_bytes_per_s=61 * 8 * 20480, power_w=1.0).figures
    assert found == {"restored_tokens_per_s": 16.0, "j_per_restored_token": 1 / 16}
    (block,) = (text for word, text in outline(config, seed=1).lines if word == "block")
    assert block == "16 tokens: 8,994,816 bytes, moved as 9,994,240, in 488 files"


def test_a_size_needs_neither_rate_nor_capacity(capsys: Captured) -> None:
    text = said(capsys, "scale=full")
    assert "cache   80 % of the file system; add target.path= or workload.capacity_bytes=" in text
    assert "rate    not given; add rate=GB/s" in text
    assert "restore" not in text
    assert "energy unknown; add power_w=W" in said(capsys, "scale=full", "rate=1")


def test_with_a_target_the_plan_of_a_run_has_the_same_lines(
    capsys: Captured, tmp_path: Path
) -> None:
    text = said(capsys, f"target.path={tmp_path}", "scale=demo", "rate=2.4576", "power_w=1")
    assert "\ntarget " in text
    assert "\nblock   256 tokens: 6,291,456 bytes, in 1 file\n" in text
    assert "\nrestore 100,000 tokens/s = " in text
    assert "\ntoken   0.01 mJ per restored token" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["workload.model=gpt-2"], "workload.model=gpt-2 is unknown; use one of tiny-1b"),
        (["workload.tp=3"], "workload.tp=3 does not divide the 8 key-value heads"),
        (["workload.block_tokens=1024"], "workload.block_tokens must be a multiple of 16"),
        (["workload.request_rate=2"], "workload.request_rate=2 needs workload.arrivals=open"),
        (["workload.capacity_bytes=1000"], "workload.capacity_bytes holds 0 blocks of 33554432"),
        (["rate=fast"], "rate must be a number, got 'fast'"),
        (["power_w=0"], "power_w must be from 1e-06"),
        (["rat=3"], "unknown setting rat; did you mean rate?"),
    ],
)
def test_what_cant_be_planned_is_one_sentence(
    capsys: Captured, words: list[str], expected: str
) -> None:
    assert expected in refused(capsys, *words)
