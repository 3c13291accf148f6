"""What a plan of reads into GPU memory needs of its targets and of the GPUs that CUDA shows."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.errors import ConfigError, TargetError
from wattload.core.storage.targets import Target
from wattload.loaders.gpu.probe import Probe
from wattload.loaders.gpu_reads import GpuReadPlan


def check_targets(plan: GpuReadPlan, targets: Sequence[Target]) -> None:
    """Raise for targets on which blocks of the plan can't be read with O_DIRECT.

    Raises:
        ConfigError: the blocks are no multiple of what O_DIRECT needs.
        TargetError: there is no O_DIRECT.
    """
    for target in targets:
        needs = target.direct_io
        if needs is None:
            raise TargetError(
                f"{target.path} has no O_DIRECT ({target.direct_io_missing}), which reads into GPU "
                "memory need; choose a target on a local disk"
            )
        align_bytes = max(needs.offset_align_bytes, needs.memory_align_bytes)
        if plan.block_bytes % align_bytes:
            raise ConfigError(
                f"O_DIRECT on {target.path} needs multiples of {align_bytes} bytes; "
                f"workload.block_bytes must be one of them, got {plan.block_bytes}"
            )


def check_gpus(plan: GpuReadPlan, found: Probe) -> None:
    """Raise ``ConfigError`` for a GPU of the plan that CUDA does not show."""
    shown = {gpu.address.lower() for gpu in found.gpus}
    missing = sorted({file.gpu for file in plan.files if file.gpu.lower() not in shown})
    if missing:
        raise ConfigError(
            f"CUDA does not show GPU {', '.join(missing)}, only {', '.join(sorted(shown))}: check "
            "workload.gpus and CUDA_VISIBLE_DEVICES, and whether MIG is on, which wattload does "
            "not support"
        )
