"""Who may use a sampler, what it serves, and which power settings a run may choose.

The kernel identifies the users and groups that connect. No client can change the sampler's own host
settings: it may tell a service what it wants, but not where to find it. A setting with a file to
read or a host to contact would make the sampler do so with rights that the client lacks.

What only a request needs is imported with the first one.
"""

from __future__ import annotations

import dataclasses
import grp
import json
import os
import pwd
import re
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from wattload.core.errors import ConfigError, PowerPermissionError
from wattload.power.control.host import PowerHost

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig

ROOT_UID = 0

MAX_ID = 0xFFFFFFFE
"""The next number, 2^32 - 1, means "no user" in the kernel's calls."""

SHORTEST_PERIOD_S = 0.01
LONGEST_PERIOD_S = 60.0
CLIENT_FIELDS = frozenset(
    {
        "source",
        "beside",
        "state",
        "dssd_watts",
        "limit_w",
        "apst",
        "set_timestamp",
        "period_s",
        "idle_s",
        "idle_after_s",
        "quiet_s",
        "tail_max_s",
        "allow_system_drive",
        "profile",
        "hwmon",
    }
)
"""What a run may choose when it uses a service: numbers, and names of existing sources."""

_GROUP_MODE = 0o660
_CREDENTIALS = struct.Struct("iII")

_SO_PEERGROUPS = 59
"""``include/uapi/asm-generic/socket.h``; Linux 4.13 and later."""

_MAX_OPTION_BYTES = 1024
"""The most that ``getsockopt`` accepts here: 256 groups. A user with more counts as in none."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerHost(PowerHost):
    """A host, and ``runs``, the folder of the run folders: the sampler writes nowhere else.

    ``is_service`` is true if clients did not start the sampler and may have fewer rights. Only then
    do these apply: ``devices``, ``allows_system_drive``, which permits runs to set the power state
    of a drive with root or swap, and ``settings``, the power settings that no run may choose.
    """

    runs: Path
    is_service: bool = False
    allows_system_drive: bool = False
    settings: PowerConfig | None = None

    @property
    def samples_name(self) -> str:
        """The name of this host's samples file in a run's folder."""
        return f"samples-{_UNSAFE.sub('_', self.name)}.jsonl"


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected; ``pid`` is 0 if it is outside this PID namespace."""

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def peer_of(connection: socket.socket) -> Peer:
    """Return who connected, according to the kernel (``SO_PEERCRED``, ``unix(7)``)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid, gid, _groups_of(connection))


def _groups_of(connection: socket.socket) -> tuple[int, ...]:
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MAX_OPTION_BYTES)
    except OSError:
        return ()
    return struct.unpack(f"{len(raw) // 4}I", raw)


def open_process(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; ``None`` if it is invisible.

    The socket alone does not show this: a forked worker of the run may keep it open.
    """
    if pid <= 0:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The users and groups that may connect, besides root and the sampler's own user."""

    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()

    @classmethod
    def named(cls, users: Sequence[str], groups: Sequence[str]) -> Self:
        """Return the access of users and groups, each given by name or number.

        Raises:
            ConfigError: a name is unknown on this host.
        """
        return cls(uids=frozenset(map(_uid, users)), gids=frozenset(map(_gid, groups)))

    def admits(self, peer: Peer) -> bool:
        if peer.uid in {ROOT_UID, os.geteuid(), *self.uids}:
            return True
        return not self.gids.isdisjoint((peer.gid, *peer.groups))

    @property
    def socket_mode(self) -> int:
        """Permissions of the socket: the least that let the permitted users connect."""
        if self.uids - {ROOT_UID, os.geteuid()} or len(self.gids) > 1:
            return 0o666  # a socket has one group, so the peer check decides
        return _GROUP_MODE if self.gids else 0o600

    @property
    def socket_gid(self) -> int | None:
        """The group of the socket, ``None`` to keep the sampler's own."""
        return next(iter(self.gids)) if self.socket_mode == _GROUP_MODE else None

    def describe(self) -> str:
        users = {ROOT_UID, os.geteuid(), *self.uids}
        named = [f"user {_user_name(uid)}" for uid in sorted(users)]
        return ", ".join(named + [f"group {_group_name(gid)}" for gid in sorted(self.gids)])


def _uid(user: str) -> int:
    if user.isdecimal():
        return _number(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise ConfigError(f"unknown user {user!r}; give a user's name or number") from error


def _gid(group: str) -> int:
    if group.isdecimal():
        return _number(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise ConfigError(
            f"unknown group {group!r}; give a group's name or number, or create it: "
            "groupadd --system wattload"
        ) from error


def _number(text: str) -> int:
    if int(text) > MAX_ID:
        raise ConfigError(f"a user or group number must be at most {MAX_ID}, got {text}")
    return int(text)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def power_config(
    request: Mapping[str, Any], devices: Sequence[str], host: SamplerHost
) -> PowerConfig:
    """Return the configuration in a request if this sampler grants it.

    Raises:
        ConfigError: a field is unknown, of the wrong type or out of range.
        PowerPermissionError: a service does not grant it.
    """
    config = _parsed(request)
    if host.is_service:
        _check_devices(devices, host)
        config = _granted(config, host)
    config.check()
    if not SHORTEST_PERIOD_S <= config.period_s <= LONGEST_PERIOD_S:
        raise ConfigError(
            f"power.period_s must be {SHORTEST_PERIOD_S:g} to {LONGEST_PERIOD_S:g}, got "
            f"{config.period_s}"
        )
    return config


def _parsed(request: Mapping[str, Any]) -> PowerConfig:
    from pydantic import TypeAdapter, ValidationError

    from wattload.core.base_models import first_fault
    from wattload.power.config import PowerConfig

    names = {field.name for field in dataclasses.fields(PowerConfig)}
    unknown = sorted(set(request) - names)
    if unknown:
        raise ConfigError(f"unknown power setting {unknown[0]!r}; available: {sorted(names)}")
    try:
        return TypeAdapter(PowerConfig).validate_json(json.dumps(request), strict=True)
    except ValidationError as error:
        place, message, value = first_fault(error)
        raise ConfigError(f"power.{place}: {message}, got {value!r}") from error


def _check_devices(devices: Sequence[str], host: SamplerHost) -> None:
    from wattload.power.nvme.admin import DEVICE_NAME

    foreign = [] if host.devices is None else sorted(set(devices) - host.devices)
    nvme = [name for name in foreign if DEVICE_NAME.fullmatch(name)]
    if nvme:
        raise PowerPermissionError(
            f"{nvme[0]} is not served by this sampler (it serves "
            f"{', '.join(sorted(host.devices or ())) or 'none'}); `wattload sampler "
            f"--device {nvme[0]}` adds it"
        )


def _granted(config: PowerConfig, host: SamplerHost) -> PowerConfig:
    """Return the configuration with the service's own values for settings no run may choose."""
    from wattload.power.config import PowerConfig
    from wattload.power.sources.replay_trace import is_staged

    if config.allow_system_drive and not host.allows_system_drive:
        raise PowerPermissionError(
            "a run may not set power.allow_system_drive here: the sampler was started "
            "without --allow-system-drive"
        )
    default = PowerConfig()
    fixed = {
        field.name: getattr(host.settings or default, field.name)
        for field in dataclasses.fields(PowerConfig)
        if field.name not in CLIENT_FIELDS
        and not (
            field.name == "replay" and is_staged(config)
        )  # not a path: it is in the run's own folder
    }
    for name, value in fixed.items():
        requested = getattr(config, name)
        if requested != value and not _is_unset(requested, getattr(default, name)):
            raise PowerPermissionError(
                f"a run may not set power.{name} here, because the sampler would use it with "
                f"its own rights; start the sampler with power.{name}=..., or unset "
                "power.sampler_socket so that the run starts a sampler with your rights"
            )
    return dataclasses.replace(config, **fixed)


def _is_unset(requested: object, default: object) -> bool:
    """Return whether a setting has its default value; in a group, whether all its fields do."""
    if requested == default:
        return True
    is_group = dataclasses.is_dataclass(requested) and not isinstance(requested, type)
    return is_group and requested == type(requested)()
