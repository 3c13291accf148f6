"""Record files of one size: several taken apart, compared and copied in one call of the library."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from wattload.core.io import VerifiedSamples
from wattload.core.units import NS_PER_S
from wattload.loaders.data.record_formats import RecordFormat, record_format
from wattload.loaders.data.verification import record_identity
from wattload.loaders.engine import library
from wattload.loaders.engine.header import struct
from wattload.loaders.samples import SampleSet


class EqualRecords:
    """Copies the payloads of files into rows, and compares them if the files are sealed."""

    def __init__(self, samples: SampleSet) -> None:
        layout = record_format(samples.record_format)
        self.payload_bytes = samples.file_bytes[0] - _edge_bytes(layout)
        self._head = layout.head((self.payload_bytes,))
        self._tail = layout.tail((self.payload_bytes,))
        nonce = samples.nonce
        self._words = [
            0 if nonce is None else record_identity(nonce, path.name).word for path in samples.paths
        ]
        self._layout = struct("wl_record_layout")(
            is_sealed=nonce is not None,
            head=ctypes.cast(ctypes.c_char_p(self._head), ctypes.c_void_p),
            tail=ctypes.cast(ctypes.c_char_p(self._tail), ctypes.c_void_p),
            head_bytes=len(self._head),
            tail_bytes=len(self._tail),
            file_bytes=samples.file_bytes[0],
            row_bytes=samples.resize_bytes,
            nonce=nonce or 0,
        )

    @staticmethod
    def fit(samples: SampleSet) -> bool:
        """Return whether the files have one size, and the same bytes around their payloads."""
        layout = record_format(samples.record_format)
        sizes = set(samples.file_bytes)
        is_one_size = layout.HAS_CONSTANT_EDGES and len(sizes) == 1
        return is_one_size and max(sizes) > _edge_bytes(layout)

    def take(
        self, indices: Sequence[int], files: Sequence[int], rows: Sequence[int]
    ) -> tuple[Sequence[VerifiedSamples | None], float]:
        """Take samples' files into rows of ``resize_bytes``; both are addresses of memory.

        Returns what was compared of each file, ``None`` where it begins or ends with other bytes
        than ours and nothing was done, and the decoding time of one file in ns, on average.
        """
        words = map(self._words.__getitem__, indices)
        records = np.zeros((len(indices), len(struct("wl_record")._fields_)), dtype=np.uint64)
        records[:, :3] = list(zip(files, rows, words, strict=True))
        times = struct("wl_record_times")()
        library.load().wl_records_take(
            ctypes.byref(self._layout),
            records.ctypes.data_as(ctypes.POINTER(struct("wl_record"))),
            len(records),
            ctypes.byref(times),
        )
        verified_bytes = self._layout.file_bytes if self._layout.is_sealed else 0
        cpu_s = times.compare_cpu_ns / NS_PER_S / len(records)
        compared = [
            None
            if is_other
            else VerifiedSamples(
                verified_bytes=verified_bytes, bad_blocks={index: bad} if bad else {}, cpu_s=cpu_s
            )
            for index, (is_other, bad) in zip(indices, records[:, 3:].tolist(), strict=True)
        ]
        return compared, times.decode_ns / len(records)


def _edge_bytes(layout: RecordFormat) -> int:
    return len(layout.head((1,))) + len(layout.tail((1,)))
