from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from wattload.core.errors import ConfigError, MissingExtraError
from wattload.loaders import device_copy
from wattload.loaders.device_copy import cuda_copier, require_cuda


def has_cuda() -> bool:
    try:
        require_cuda()
    except (ConfigError, MissingExtraError):
        return False
    return True


needs_cuda = pytest.mark.skipif(not has_cuda(), reason="no CUDA device that PyTorch sees")


def test_without_a_driver_there_is_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_copy, "DRIVER", tmp_path / "nvidiactl")
    with pytest.raises(ConfigError, match=r"nvidiactl is missing.*accelerator\.device=none"):
        require_cuda()


def test_without_pytorch_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_copy, "DRIVER", tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"\[torch\]"):
        require_cuda()


def test_a_pytorch_that_sees_no_device_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(device_copy, "DRIVER", tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"PyTorch {torch.__version__.split('+')[0]}"):
        require_cuda()


def test_the_driver_is_looked_for_before_pytorch_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_copy, "DRIVER", tmp_path / "nvidiactl")
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise ImportError
    with pytest.raises(ConfigError):
        require_cuda()


@needs_cuda
def test_rows_come_back_from_the_device_as_they_went() -> None:
    shape = (7, 1 << 21)
    random = np.random.default_rng(1)
    copier = cuda_copier(shape, accelerators=1, local_rank=0)
    sent, came = {}, {}
    for number in range(5):
        tensor = random.integers(0, 256, shape, dtype=np.uint8)
        for arrived in copier.make_room():
            came.update({key: row.tobytes() for key, row in arrived.rows.items()})
            assert arrived.copied_bytes == tensor.nbytes
            assert arrived.device_s > 0
        copier.copy(tensor, {number: number})
        sent[number] = tensor[number].tobytes()
        tensor[:] = 0
    for arrived in copier.finish():
        came.update({key: row.tobytes() for key, row in arrived.rows.items()})
    copier.close()
    copier.close()
    assert came == sent


def test_a_device_that_has_no_room_left_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    def full(_: object) -> None:
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later")

    monkeypatch.setattr(device_copy, "require_cuda", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU {number}")
    monkeypatch.setattr(torch.cuda, "device", full)
    with pytest.raises(ConfigError) as caught:
        cuda_copier((7, 4096), accelerators=1, local_rank=3)
    assert str(caught.value) == (
        "GPU 1 number 1 can't be used: CUDA error: out of memory; use accelerator.device=none"
    )
