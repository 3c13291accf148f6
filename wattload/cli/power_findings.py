"""What the doctor finds of power beside the drives: GPUs, rails, processors, the node's BMC."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from wattload.cli.finding import Finding, Verdict
from wattload.core.errors import PowerError, PowerPermissionError
from wattload.core.sysfs import LIVE, Roots
from wattload.power.sources.hwmon_channels import list_channels
from wattload.power.sources.ipmi import IpmiSource, OpenLink
from wattload.power.sources.ipmi_device import DEVICE, IpmiDevice
from wattload.power.sources.rapl import find_zones
from wattload.power.sources.redfish_client import PASSWORD_VARIABLE, USER_VARIABLE

_GPU_ADDS = "power and energy of GPUs (power=nvml), of scope gpu: never a drive's figure"
_HWMON_ADDS = "a drive's rails (power.hwmon.rails names them), else power of scope node"
_RAPL_ADDS = "the processors' energy (power=rapl), of scope node: never a drive's figure"
_IPMI_ADDS = "the whole node's power (power=ipmi), of scope node: never a drive's figure"
_REDFISH_ADDS = "the node's power, and drives' where the BMC knows them (power=redfish)"

_PERIOD_S = 1.0
_CHANNELS_SHOWN = 8


def power_findings(
    roots: Roots = LIVE,
    load: Callable[[str], Any] = import_module,
    *,
    ipmi: Path = DEVICE,
    open_link: OpenLink = IpmiDevice,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Finding]:
    """Yield which power meters there are beside the drives' own."""
    yield _nvml(load)
    yield _hwmon(roots)
    yield _rapl(roots)
    yield _ipmi(ipmi, open_link)
    yield _redfish(environment)


def _nvml(load: Callable[[str], Any]) -> Finding:
    finding = partial(Finding, name="NVML", adds=_GPU_ADDS)
    try:
        pynvml = load("pynvml")
    except ImportError:
        return finding(
            verdict=Verdict.NO,
            says="the module pynvml is not installed",
            mend="pip install 'wattload[gpu]'",
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return finding(
            verdict=Verdict.NO,
            says=f"pynvml is installed, and no driver answers: {error}",
            mend="nvidia-smi",
        )
    try:
        count = pynvml.nvmlDeviceGetCount()
    finally:
        pynvml.nvmlShutdown()
    return finding(
        verdict=Verdict.YES if count else Verdict.NO,
        says=f"{count} GPU{'' if count == 1 else 's'}",
        mend="" if count else "nvidia-smi",
    )


def _hwmon(roots: Roots) -> Finding:
    finding = partial(Finding, name="hwmon", adds=_HWMON_ADDS)
    channels = list_channels(roots)
    if not channels:
        return finding(
            verdict=Verdict.NO,
            says="the kernel shows no sensor of power or energy",
            mend="sudo modprobe acpi_power_meter",
        )
    shown = ", ".join(channel.key for channel in channels[:_CHANNELS_SHOWN])
    more = f" and {len(channels) - _CHANNELS_SHOWN} more" * (len(channels) > _CHANNELS_SHOWN)
    return finding(verdict=Verdict.YES, says=f"{shown}{more}")


def _rapl(roots: Roots) -> Finding:
    finding = partial(Finding, name="RAPL", adds=_RAPL_ADDS)
    try:
        sources = find_zones(roots, period_s=_PERIOD_S)
    except PowerError:
        return finding(
            verdict=Verdict.NO,
            says="the kernel shows no zone, as in most virtual machines",
            mend="sudo modprobe intel_rapl_msr",
        )
    for source in sources:
        try:
            source.open()
        except PowerPermissionError:
            return finding(
                verdict=Verdict.NO,
                says=f"the counters are for root alone, and this is user {os.geteuid()}",
                mend="sudo -E wattload doctor",
            )
        except PowerError as error:
            return finding(verdict=Verdict.NO, says=str(error), mend="sudo dmesg | grep -i rapl")
        finally:
            source.close()
    names = ", ".join(source.facts().device for source in sources)
    return finding(verdict=Verdict.YES, says=names)


def _ipmi(path: Path, open_link: OpenLink) -> Finding:
    """Ask the BMC once, which takes milliseconds."""
    finding = partial(Finding, name="IPMI", adds=_IPMI_ADDS)
    if not path.exists():
        return finding(
            verdict=Verdict.NO,
            says=f"{path} is not here: no BMC, or its driver is not loaded",
            mend="sudo modprobe -a ipmi_si ipmi_devintf",
        )
    source = IpmiSource(period_s=_PERIOD_S, open_link=open_link)
    try:
        source.open()
        (sample,) = source.read()
    except PowerPermissionError as error:
        return finding(verdict=Verdict.NO, says=str(error), mend="sudo -E wattload doctor")
    except PowerError as error:
        return finding(verdict=Verdict.NO, says=str(error), mend="sudo ipmitool dcmi discover")
    finally:
        source.close()
    watts = "busy just now" if sample.value is None else f"{sample.value:g} W just now"
    return finding(verdict=Verdict.YES, says=f"{path} tells the node's power by DCMI, {watts}")


def _redfish(environment: Mapping[str, str]) -> Finding:
    """Tell whether there are credentials; which BMC they are for is a run's to say."""
    finding = partial(Finding, name="Redfish", adds=_REDFISH_ADDS)
    lacking = [name for name in (USER_VARIABLE, PASSWORD_VARIABLE) if name not in environment]
    if lacking:
        return finding(
            verdict=Verdict.NO,
            says=f"{' and '.join(lacking)} not set: no BMC can be asked over HTTPS",
            mend=f"read -rsp 'password: ' {PASSWORD_VARIABLE} && "
            f"export {PASSWORD_VARIABLE} {USER_VARIABLE}=monitor",
        )
    return finding(
        verdict=Verdict.YES,
        says="user and password are set; power.redfish.url=https://bmc.example says for which BMC",
    )
