"""The checks that a run makes of its index at the end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattload.core.record.results import Check


def stored_nodes(count: int, wrong: NDArray[np.int64]) -> Check:
    """Return the check of all nodes, read back and compared with their digests."""
    text = f"At the end all {count:,} nodes on the drive were as they were when the index was made."
    if len(wrong):
        text = f"At the end {len(wrong):,} of {count:,} nodes on the drive were not what they were "
        text += f"when the index was made; the first of them is node {wrong[0]}."
    return Check(
        name="stored_nodes",
        verdict="fail" if len(wrong) else "pass",
        sentence=text,
        figures={"nodes": count, "wrong": len(wrong)},
        mandatory=True,
    )


def medoid(stated: int, nearest: int) -> Check:
    """Return the check of the node where searches begin, which is to be the nearest to the mean."""
    return Check(
        name="medoid",
        verdict="pass" if stated == nearest else "fail",
        sentence=f"Searches begin at node {stated}, and the vector nearest to the mean of all is "
        f"that of node {nearest}" + ("." if stated == nearest else ": the header has another one."),
        figures={"stated": stated, "nearest": nearest},
    )
