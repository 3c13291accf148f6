"""Verification of record files: payloads in sealed blocks, within headers of known content.

The blocks are those of the file (``loaders.stamps``); the first and the last of them hold as much
as the payload has there. The identity in their stamps is the data set's nonce and a hash of the
file's name, so that a file of another data set, or under another name, is wrong.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import BlockIdentity, VerifiedSamples
from wattload.loaders.data.record_formats import RecordFormat, record_format
from wattload.loaders.samples import SampleSet
from wattload.loaders.stamps import bad_blocks


def record_identity(nonce: int, name: str) -> BlockIdentity:
    """Return the identity in the stamps of a data set's file."""
    digest = hashlib.sha256(name.encode()).digest()
    return BlockIdentity(nonce, int.from_bytes(digest[:8], "little"))


def verify_payload(samples: SampleSet, index: int, payload: NDArray[np.uint8]) -> VerifiedSamples:
    """Compare the blocks of a sample's whole payload; nothing if its files are not sealed."""
    if samples.nonce is None:
        return VerifiedSamples()
    start_s = time.thread_time()
    layout, path = record_format(samples.record_format), samples.paths[index]
    bad = bad_payload_blocks(layout, samples.nonce, path, samples.file_bytes[index], payload)
    return VerifiedSamples(
        verified_bytes=len(payload),
        bad_blocks={index: bad} if bad else {},
        cpu_s=time.thread_time() - start_s,
    )


def verify_file(
    samples: SampleSet, index: int, raw: NDArray[np.uint8], payload: NDArray[np.uint8]
) -> VerifiedSamples:
    """Compare a sample's whole file: the blocks of its payload, and the bytes around it."""
    found = verify_payload(samples, index, payload)
    if samples.nonce is None:
        return found
    start_s = time.thread_time()
    found.verified_bytes = len(raw)
    if not record_format(samples.record_format).surrounds(raw, str(samples.paths[index])):
        found.bad_blocks[index] = found.bad_blocks.get(index, 0) + 1
    found.cpu_s += time.thread_time() - start_s
    return found


def bad_file_blocks(layout: RecordFormat, nonce: int, path: Path, raw: NDArray[np.uint8]) -> int:
    """Return how many blocks of a whole file are wrong; the bytes around the payload are one."""
    payload = layout.payload(raw, str(path))
    wrong = bad_payload_blocks(layout, nonce, path, len(raw), payload)
    return wrong + (not layout.surrounds(raw, str(path)))


def bad_payload_blocks(
    layout: RecordFormat, nonce: int, path: Path, file_bytes: int, payload: NDArray[np.uint8]
) -> int:
    """Return how many blocks of a file's payload are not those that were written."""
    after_bytes = len(layout.tail(payload.shape))  # the same for every shape
    return bad_blocks(
        payload,
        record_identity(nonce, path.name),
        offset_bytes=file_bytes - len(payload) - after_bytes,
    )
