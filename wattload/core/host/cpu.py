"""The host's processors: model, microcode, frequency governor, idle states, SMT."""

from __future__ import annotations

from pathlib import Path

from wattload.core.sysfs import Observation, Roots, read_int, read_text


def read_cpu(observation: Observation, roots: Roots) -> None:
    """Put the host facts that are about its processors into the observation."""
    folder = roots.sys / "devices/system/cpu"
    info = _cpuinfo(roots)
    model = info.get("model name") or info.get("Model") or info.get("cpu model")
    observation.put("cpu_model", model, "cpuinfo names no model")
    observation.put("microcode", info.get("microcode"), "cpuinfo names no microcode revision")
    governors = sorted(
        {read_text(path) for path in folder.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    )
    observation.put(
        "governor", ", ".join(governors) or None, "no cpufreq: nothing here sets the frequency"
    )
    observation.read("c_states", lambda: _idle_states(folder), "no cpuidle: no idle states shown")
    observation.read("smt_active", lambda: read_int(folder / "smt/active") == 1)


def cpu_flags(roots: Roots) -> frozenset[str]:
    """Return the flags of the first processor."""
    return frozenset(_cpuinfo(roots).get("flags", "").split())


def _cpuinfo(roots: Roots) -> dict[str, str]:
    """Return the first processor's part of ``/proc/cpuinfo``; nothing where it can't be read."""
    try:
        text = read_text(roots.proc / "cpuinfo")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _idle_states(folder: Path) -> tuple[str, ...] | None:
    states = sorted((folder / "cpu0/cpuidle").glob("state*"), key=lambda path: int(path.name[5:]))
    return tuple(_idle_state(path) for path in states) or None


def _idle_state(folder: Path) -> str:
    name = read_text(folder / "name")
    return f"{name} (disabled)" if read_int(folder / "disable") else name
