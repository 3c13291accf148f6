"""What every loader of whole samples does alike: order, bytes, proof, dropped rest, clean end."""

from __future__ import annotations

import io
import pickle
import signal
import subprocess
import sys
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.damage import DAMAGES, flip_bit
from wattload.core.errors import DataError
from wattload.core.io import Batch, Loader, VerifiedSamples
from wattload.loaders.data.record_formats import FORMATS
from wattload.loaders.data.verification import record_identity
from wattload.loaders.samples import SampleLoaderConfig, SampleSet
from wattload.loaders.stamps import seal

READ_FOR_EVER = Path(__file__).with_name("read_for_ever.py")

BATCH = 3
RESIZE = 5000
NONCE = 0xFEED_0000_0000_BEEF


@dataclass
class Counter:
    """Adds up what a loader says it has read."""

    read_bytes: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, read_bytes: int) -> None:
        with self._lock:
            self.read_bytes += read_bytes


@dataclass
class Seen:
    """A batch as it was when it came: the tensor may be used again for the next."""

    tensor: bytes
    batch: Batch


def make_samples(folder: Path, record_format: str = "npz", count: int = 11) -> SampleSet:
    """Write ``count`` records of many sizes, one shorter than the resize length.

    Those of numpy's formats are as numpy writes them, and a JPEG as we do.
    """
    paths = []
    for index in range(count):
        record = payload_of(index).reshape(-1, 7, 1)
        path = folder / f"{index}.{record_format}"
        if record_format == "npz":
            np.savez(path, x=record, y=[0])
        elif record_format == "npy":
            np.save(path, record)
        else:
            write_record(path, payload_of(index), record_format, None)
        paths.append(path)
    return SampleSet(
        paths=tuple(paths),
        file_bytes=tuple(path.stat().st_size for path in paths),
        record_format=record_format,
        batch_samples=BATCH,
        resize_bytes=RESIZE,
    )


def write_record(
    path: Path, payload: np.ndarray[Any, np.dtype[np.uint8]], record_format: str, nonce: int | None
) -> int:
    """Write a record as a data set has it, sealed under a nonce; return the size of the file."""
    layout, shape, sealed = FORMATS[record_format], (len(payload), 1, 1), payload.copy()
    start = len(layout.head(shape))
    for position, data in layout.inside(shape):
        sealed[position - start :][: len(data)] = np.frombuffer(data, np.uint8)
    if nonce is not None:
        seal(sealed, record_identity(nonce, path.name), offset_bytes=start)
    crc32 = zlib.crc32(layout.checked_head(shape) + sealed.tobytes()) if layout.HAS_CRC else 0
    content = layout.head(shape, crc32) + sealed.tobytes() + layout.tail(shape, crc32)
    return path.write_bytes(content)


def sealed_samples(samples: SampleSet, nonce: int = NONCE) -> SampleSet:
    """Replace the records of the samples by sealed ones."""
    sizes = [
        write_record(path, payload_of(index), samples.record_format, nonce)
        for index, path in enumerate(samples.paths)
    ]
    return replace(samples, file_bytes=tuple(sizes), nonce=NONCE, drawn=frozenset(range(11)))


def payload_of(index: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the payload of a record: 700 bytes in the first, up to 300 kB in others."""
    size = 700 if index == 0 else 7 * (1000 + 4001 * index)
    return np.random.default_rng(index).integers(0, 256, size, dtype=np.uint8)


class LoaderContract(ABC):
    """Subclass it as ``Test...`` with the loader's configuration."""

    @abstractmethod
    def config(self) -> SampleLoaderConfig:
        """Return the configuration of the loader under test, with few workers."""

    @contextmanager
    def opened(self, samples: SampleSet, counter: Counter | None = None) -> Iterator[Loader]:
        """Yield a loader and close it."""
        loader = self.config().sample_loader(samples, counter or Counter())
        try:
            yield loader
        finally:
            loader.close()

    def epoch(self, loader: Loader, order: Sequence[int]) -> list[Seen]:
        """Return the batches of an epoch, with copies of their tensors."""
        return [Seen(batch.tensor.tobytes(), batch) for batch in loader.epoch(order)]

    @pytest.mark.parametrize("record_format", sorted(FORMATS))
    def test_batches_hold_the_front_of_each_record_in_order(
        self, tmp_path: Path, record_format: str
    ) -> None:
        samples = make_samples(tmp_path, record_format)
        counter = Counter()
        order = [4, 0, 7, 10, 2, 2, 9, 1, 5]
        with self.opened(samples, counter) as loader:
            seen = self.epoch(loader, order)
        assert [index for one in seen for index in one.batch.indices] == order
        for one in seen:
            fronts = [payload_of(index)[:RESIZE].tobytes() for index in one.batch.indices]
            assert one.tensor == b"".join(front.ljust(RESIZE, b"\0") for front in fronts)
            assert one.batch.tensor.shape == (BATCH, RESIZE)
            assert one.batch.tensor.dtype == np.uint8

    def test_bytes_are_those_of_files_and_payloads(self, tmp_path: Path) -> None:
        samples, counter = make_samples(tmp_path), Counter()
        with self.opened(samples, counter) as loader:
            seen = self.epoch(loader, [3, 1, 6, 8, 0, 5])
        for one in seen:
            indices = one.batch.indices
            assert one.batch.payload_bytes == sum(len(payload_of(index)) for index in indices)
            assert one.batch.read_bytes == sum(samples.file_bytes[index] for index in indices)
        assert counter.read_bytes == sum(one.batch.read_bytes for one in seen)

    def verified(self, samples: SampleSet, order: Sequence[int]) -> VerifiedSamples:
        """Return what a loader verified of an epoch."""
        found = VerifiedSamples()
        with self.opened(samples) as loader:
            for batch in loader.epoch(order):
                found.add(batch.verified)
        return found

    @pytest.mark.parametrize("record_format", sorted(FORMATS))
    def test_every_byte_of_sealed_payloads_is_verified(
        self, tmp_path: Path, record_format: str
    ) -> None:
        samples, order = sealed_samples(make_samples(tmp_path, record_format)), [9, 1, 2, 3, 0, 4]
        found = self.verified(samples, order)
        payload_bytes = sum(len(payload_of(index)) for index in order)
        file_bytes = sum(samples.file_bytes[index] for index in order)
        assert found.verified_bytes == (
            file_bytes
            if self.config().sample_verified.startswith("every byte of each file")
            else payload_bytes
        )
        assert found.bad_blocks == {}
        assert found.cpu_s > 0

    def test_what_is_not_sealed_is_not_verified(self, tmp_path: Path) -> None:
        assert self.verified(make_samples(tmp_path), [1, 2, 3]) == VerifiedSamples()

    def test_no_damage_behind_a_sound_header_passes(self, tmp_path: Path) -> None:
        samples = sealed_samples(make_samples(tmp_path, "npy"))
        headers = ("zeroed", "a bit flipped at the start")
        damages = [damage for name, damage in DAMAGES.items() if name not in headers]
        for path, damage in zip(samples.paths[3:9], damages, strict=True):
            damage(path, samples.paths[9])
        assert self.verified(samples, [*range(3, 9)]).bad_blocks.keys() == set(range(3, 9))

    def test_a_bit_flipped_in_any_block_is_found(self, tmp_path: Path) -> None:
        samples = sealed_samples(make_samples(tmp_path, "npy"))
        path, end = samples.paths[1], samples.file_bytes[1]
        start = path.read_bytes().index(NONCE.to_bytes(8, "little"))
        with self.opened(samples) as loader:
            for number, place in enumerate((start, start + 3000, *range(4096, end, 4000), end - 1)):
                flip_bit(path, place, number % 8)
                (batch,) = loader.epoch([1, 2, 3])
                assert batch.verified.bad_blocks == {1: 1}, place
                flip_bit(path, place, number % 8)

    def test_files_of_another_data_set_or_name_are_wrong(self, tmp_path: Path) -> None:
        samples = make_samples(tmp_path, "npy")
        other = sealed_samples(samples, nonce=NONCE + 1).paths[3].read_bytes()
        samples = sealed_samples(samples)
        samples.paths[3].write_bytes(other)
        write_record(samples.paths[0], payload_of(4), "npy", NONCE)
        samples.paths[4].write_bytes(samples.paths[0].read_bytes())
        assert self.verified(samples, [3, 4, 5]).bad_blocks.keys() == {3, 4}

    def test_an_incomplete_batch_is_dropped_and_not_read(self, tmp_path: Path) -> None:
        samples, counter = make_samples(tmp_path), Counter()
        with self.opened(samples, counter) as loader:
            seen = self.epoch(loader, [1, 2, 3, 4, 5])
            assert not self.epoch(loader, [6, 7])
        assert [one.batch.indices for one in seen] == [(1, 2, 3)]
        assert counter.read_bytes == sum(samples.file_bytes[index] for index in (1, 2, 3))

    def test_epochs_follow_each_other_in_new_orders(self, tmp_path: Path) -> None:
        orders = [[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1], [8, 8, 8]]
        with self.opened(make_samples(tmp_path)) as loader:
            for order in orders:
                seen = self.epoch(loader, order)
                assert [index for one in seen for index in one.batch.indices] == order

    def test_an_epoch_may_be_left_early(self, tmp_path: Path) -> None:
        with self.opened(make_samples(tmp_path)) as loader:
            batches = loader.epoch(list(range(9)))
            assert next(batches).indices == (0, 1, 2)
            seen = self.epoch(loader, [9, 8, 7])
        assert seen[0].batch.indices == (9, 8, 7)
        assert seen[0].tensor[:RESIZE] == payload_of(9)[:RESIZE].tobytes()

    def test_nothing_is_read_before_the_first_epoch(self, tmp_path: Path) -> None:
        counter = Counter()
        with self.opened(make_samples(tmp_path), counter):
            assert counter.read_bytes == 0

    def test_samples_held_in_memory_need_their_files_no_more(self, tmp_path: Path) -> None:
        samples = replace(make_samples(tmp_path), in_memory=True)
        with self.opened(samples) as loader:
            for path in samples.paths:
                path.unlink()
            seen = self.epoch(loader, [5, 1, 4])
            assert loader.path().path_requested == "memory"
        assert seen[0].tensor[:RESIZE] == payload_of(5)[:RESIZE].tobytes()

    @pytest.mark.parametrize("record_format", sorted(FORMATS))
    @pytest.mark.parametrize("damage", ["cut", "foreign", "dtype"])
    def test_a_damaged_file_is_one_sentence_with_its_name(
        self, tmp_path: Path, record_format: str, damage: str
    ) -> None:
        samples = make_samples(tmp_path, record_format)
        path = samples.paths[6]
        path.write_bytes(damaged(path.read_bytes(), damage, record_format))
        with self.opened(samples) as loader, pytest.raises(DataError) as caught:
            self.epoch(loader, [1, 2, 3, 4, 5, 6])
        assert str(path) in str(caught.value)
        assert "Traceback" not in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("record_format", sorted(FORMATS))
    def test_a_record_that_was_replaced_by_a_larger_one_is_an_error(
        self, tmp_path: Path, record_format: str
    ) -> None:
        """Its size is what bytes are counted by."""
        samples = make_samples(tmp_path, record_format)
        samples.paths[6].write_bytes(samples.paths[9].read_bytes())
        with (
            self.opened(samples) as loader,
            pytest.raises(DataError, match=rf"[/\b]6\.{record_format}"),
        ):
            self.epoch(loader, [1, 2, 3, 4, 5, 6])

    def test_decoding_is_timed_for_every_batch_or_for_none(self, tmp_path: Path) -> None:
        with self.opened(make_samples(tmp_path)) as loader:
            batches = [one.batch for one in self.epoch(loader, range(9))]
            times_s = [batch.decode_s for batch in batches]
        assert all(seconds is None for seconds in times_s) or all(times_s)
        assert self.config().sample_decode_timed
        assert len({bool(batch.open_s) for batch in batches}) == 1

    def test_a_changed_byte_is_found_exactly_where_a_crc_is_computed(self, tmp_path: Path) -> None:
        """What a loader says of the CRC is what it pays for, asked or not."""
        samples = make_samples(tmp_path)
        content = bytearray(samples.paths[4].read_bytes())
        content[len(content) // 2] ^= 1
        samples.paths[4].write_bytes(content)
        with self.opened(samples) as loader:
            if self.config().sample_checks_crc(samples):
                with pytest.raises(DataError, match=r"4\.npz"):
                    self.epoch(loader, [4, 5, 6])
            else:
                self.epoch(loader, [4, 5, 6])

    def test_a_format_without_a_crc_has_none_to_pay_for(self, tmp_path: Path) -> None:
        samples = replace(make_samples(tmp_path, "npy"), check_crc=True)
        assert not self.config().sample_checks_crc(samples)

    def test_an_interrupt_ends_the_epoch_and_leaves_nothing_behind(self, tmp_path: Path) -> None:
        """A process of its own gets a real SIGINT in the middle of an epoch without end."""
        given = tmp_path / "given"
        given.write_bytes(pickle.dumps((self.config(), make_samples(tmp_path))))
        command = [sys.executable, str(READ_FOR_EVER), str(given)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            assert run.stdout.readline() == "reading\n"
            run.send_signal(signal.SIGINT)
            reported = run.stdout.read().splitlines()
        assert reported == ["interrupted", "[[], []]"], reported
        assert run.returncode == 0

    def test_a_crc_is_compared_when_asked(self, tmp_path: Path) -> None:
        samples = replace(make_samples(tmp_path), check_crc=True)
        assert self.config().sample_checks_crc(samples)
        content = bytearray(samples.paths[6].read_bytes())
        content[len(content) // 2] ^= 1
        samples.paths[6].write_bytes(content)
        with self.opened(samples) as loader, pytest.raises(DataError, match=r"6\.npz"):
            self.epoch(loader, [4, 5, 6])

    def test_closing_twice_is_no_error_and_then_no_epoch(self, tmp_path: Path) -> None:
        loader = self.config().sample_loader(make_samples(tmp_path), Counter())
        assert next(loader.epoch([1, 2, 3, 4, 5, 6])).indices == (1, 2, 3)
        loader.close()
        loader.close()
        with pytest.raises(RuntimeError, match="closed"):
            self.epoch(loader, [1, 2, 3])

    def test_memory_is_bounded_and_known_before(self, tmp_path: Path) -> None:
        samples = make_samples(tmp_path)
        bound = self.config().sample_memory_bytes(samples)
        assert bound >= max(samples.file_bytes) + samples.batch_bytes
        assert self.config().sample_memory_bytes(replace(samples, accelerators=2)) >= bound


def damaged(content: bytes, damage: str, record_format: str) -> bytes:
    """Return a file's content cut in half, replaced by text, or with float64 in place of uint8.

    A JPEG has no other type: there it is a file of numpy's.
    """
    if damage == "cut":
        return content[: len(content) // 2]
    if damage == "foreign":
        return b"not a record at all\n" * (len(content) // 20 + 1)
    file = io.BytesIO()
    array = np.zeros(len(content) // 8 + 100)
    if record_format == "npz":
        np.savez(file, x=array)
    else:
        np.save(file, array)
    return file.getvalue()
