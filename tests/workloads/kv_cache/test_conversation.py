"""The preset whose requests are like a published trace: compared with the published figures."""

from __future__ import annotations

import pytest

from wattload.run.compose import compose
from wattload.workloads.kv_cache.config import Config
from wattload.workloads.kv_cache.sources import source_of, source_report

# Mooncake's conversation trace: 12,031 requests in 3,537 s with 288,500 blocks of 512 tokens, the
# shares of these that an LRU cache hits, by its blocks, and times between uses of a block.
REQUESTS_PER_S = 12_031 / 3537
BLOCKS_A_REQUEST = 288_500 / 12_031
HIT_SHARES = {1000: 0.045, 10_000: 0.21, 30_000: 0.33, None: 0.366}
GAPS_S = (114, 519, 1578)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_preset_is_like_the_published_trace(seed: int) -> None:
    run, _ = compose(["workload=kv_cache_conversation", "target.path=/nowhere"])
    config = run.workload
    assert isinstance(config, Config)
    assert config.block_tokens == 512
    report = source_report(source_of(config, seed=seed), [1000, 10_000, 30_000])
    assert report.requests == 12_000
    assert report.span_s is not None
    assert report.requests / report.span_s == pytest.approx(REQUESTS_PER_S, rel=0.1)
    assert report.references / report.requests == pytest.approx(BLOCKS_A_REQUEST, rel=0.1)
    for point in report.lru:
        share = point.hit_blocks / report.references
        assert share == pytest.approx(HIT_SHARES[point.blocks], abs=0.05), point.blocks
    found = (report.gap_p50_s, report.gap_p90_s, report.gap_p99_s)
    for gap_s, published_s in zip(found, GAPS_S, strict=True):
        assert gap_s is not None
        assert published_s / 2 < gap_s < published_s * 2
