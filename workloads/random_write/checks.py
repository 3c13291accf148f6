"""The check that what was written is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattload.core.record.results import Check
from wattload.results.random_write.facts import Condition, Draw
from wattload.workloads.random_write.config import Config
from wattload.workloads.random_write.write_area import WriteArea, foreign_blocks
from wattload.workloads.random_write.writing import FIRST_WORD, Writing

SAMPLED_BLOCKS = 2048


def written_blocks(config: Config, area: WriteArea, written: Writing, *, seed: int) -> Check:
    """Read blocks back by O_DIRECT and compare their stamps and sums.

    The blocks of traced writes must carry the stamp of a random pass of this run. After
    ``each_once`` every block must carry that of the last pass. Other blocks may be older, from a
    preparation or an earlier run, but must be whole: ``uniform`` leaves some out.
    """
    rng = np.random.default_rng(seed)
    rows = [each.rows["offset_bytes"] for each in written.traced]
    traced = np.concatenate(rows) if rows else np.zeros(0, dtype=np.uint64)
    drawn = rng.permutation(traced.astype(np.int64))[: SAMPLED_BLOCKS // 2]
    last = FIRST_WORD + len(written.passes) - 1
    covers_all = config.drawn is Draw.each_once
    least = last if covers_all else FIRST_WORD
    ours = {int(offset) for offset in drawn}
    others: set[int] = set()
    if covers_all or config.prepared is not Condition.none or area.is_file:
        blocks = rng.integers(0, area.range_bytes // config.block_bytes, SAMPLED_BLOCKS // 2)
        others = {int(block) * config.block_bytes for block in blocks}

    def is_as_written(offset: int, nonce: int, word: int) -> bool:
        must_be_new = covers_all or offset in ours
        return not must_be_new or (nonce == area.nonce and least <= word <= last)

    offsets = sorted(ours | others)
    bad = list(foreign_blocks(area, config.block_bytes, offsets, is_as_written))
    return _check(config, len(offsets), bad)


def _check(config: Config, count: int, bad: Sequence[int]) -> Check:
    good = count > 0 and not bad
    errors = f": {len(bad)} are wrong, the first at byte {bad[0]}" if bad else ""
    return Check(
        name="written_blocks",
        verdict="pass" if good else "fail",
        sentence=(
            f"{count} blocks of {config.block_bytes} bytes were read back and compared with "
            f"their stamps and sums{'.' if good else errors + '.'}"
        ),
        figures={"read_blocks": count, "bad_blocks": len(bad)},
        mandatory=True,
    )
