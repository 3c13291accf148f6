"""Who may use a sampler: users and groups, by the kernel's word on who connects."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from wattload.core.errors import ConfigError
from wattload.power.sampler.peer import Peer

ROOT_UID = 0
LAST_ID = 0xFFFFFFFE
"""The one after it stands for no user in the kernel's calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Root and the sampler's own user always may; beside them these users and groups."""

    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()

    @classmethod
    def named(cls, users: Sequence[str], groups: Sequence[str]) -> Self:
        """Return the access of users and groups, each by its name or its number.

        Raises:
            ConfigError: there is none of that name here.
        """
        return cls(uids=frozenset(map(_uid, users)), gids=frozenset(map(_gid, groups)))

    def admits(self, peer: Peer) -> bool:
        """Return whether whoever connected may use the sampler."""
        if peer.uid in {ROOT_UID, os.geteuid(), *self.uids}:
            return True
        return not self.gids.isdisjoint((peer.gid, *peer.groups))

    @property
    def socket_mode(self) -> int:
        """Permissions of the socket: no wider than they must be for those who may try it."""
        if self.uids - {ROOT_UID, os.geteuid()} or len(self.gids) > 1:
            return 0o666  # a socket has one group: the kernel's word alone decides
        return 0o660 if self.gids else 0o600

    @property
    def socket_gid(self) -> int | None:
        """The group that the socket is given, ``None`` where it keeps the sampler's own."""
        return next(iter(self.gids)) if self.socket_mode == 0o660 else None  # noqa: PLR2004

    def describe(self) -> str:
        """Return who may use the sampler, in words."""
        users = {ROOT_UID, os.geteuid(), *self.uids}
        named = [f"user {_user_name(uid)}" for uid in sorted(users)]
        return ", ".join(named + [f"group {_group_name(gid)}" for gid in sorted(self.gids)])


def _uid(user: str) -> int:
    if user.isdecimal():
        return _number(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise ConfigError(f"there is no user {user!r} here; name one, or its number") from error


def _gid(group: str) -> int:
    if group.isdecimal():
        return _number(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise ConfigError(
            f"there is no group {group!r} here; name one, or its number, or make it: "
            "groupadd --system wattload"
        ) from error


def _number(text: str) -> int:
    if int(text) > LAST_ID:
        raise ConfigError(f"a user or group has a number of at most {LAST_ID}, got {text}")
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
