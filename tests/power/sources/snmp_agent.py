"""A real SNMP agent for tests: net-snmp's ``snmpd`` on loopback, unprivileged, with its own state.

The values of a PDU in it are facts of recorded walks, which LibreNMS keeps in ``tests/snmpsim``.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.power.sources import snmp_objects
from tests.run.running import until

SNMPD = Path("/usr/sbin/snmpd")
COMMUNITY, USER = "c0mmunity-of-the-pdu", "reader"
VERSIONS = ("v1", "v2c")
"""Each alone has a community of its own, ``COMMUNITY-VERSION``, and all may use ``COMMUNITY``."""
AUTHENTICATION, PRIVACY = "authentic-s3cret", "private-s3cret"
PROTOCOLS = {
    "md5": "MD5",
    "sha": "SHA",
    "sha256": "SHA-256",
    "sha512": "SHA-512",
    "des": "DES",
    "aes": "AES",
    "aes256": "AES-256",
}
"""The settings of version 3 to net-snmp's names."""
USERS = (("md5", "des"), ("sha", "aes"), ("sha", "aes256"), ("sha256", "aes"), ("sha512", "aes256"))
LEVELS = ("priv", "auth", "noauth")
"""For each of these protocols and least levels of security, there is a user (``user_name``)."""

PX = "1.3.6.1.4.1.13742.6"
PX3_W = {1: 143, 7: 0, 13: 390, 24: 550}
"""Watts at outlets of a PX3-5493U-K2 (``raritan-pdu_px3``)."""
PX4_W = {11: 3, 23: 106}
"""Watts at outlets of a PX4-5730-E8V2 (``raritan-pdu_px4``)."""
RPDU2 = "1.3.6.1.4.1.318.1.3.4.6"
RPDU2_POWER = "1.3.6.1.4.1.318.1.1.26.4.3.1.5"
RPDU2_COUNTS = {"ap8853": 114, "ap8959eu3": 27, "apdu9959eu3": 117}
"""Power of units in 0.01 kW (``apc_ap8853`` and so on)."""

Objects = Mapping[str, tuple[str, str]]


def user_name(authentication: str, privacy: str, level: str) -> str:
    return f"{USER}-{authentication}-{privacy}-{level}"


def px(outlet: int, watts: int, unit: int = 1) -> dict[str, tuple[str, str]]:
    """Return the objects of a Raritan outlet, as both walks have them at each that is on."""
    index = f"{unit}.{outlet}"
    return {
        f"{PX}.5.4.3.1.4.{index}.5": ("gauge", str(watts)),
        f"{PX}.5.4.3.1.3.{index}.5": ("integer", "4"),
        f"{PX}.5.4.3.1.3.{index}.14": ("integer", "7"),
        f"{PX}.3.5.4.1.6.{index}.5": ("integer", "3"),
        f"{PX}.3.5.4.1.7.{index}.5": ("gauge", "0"),
    }


class Agent:
    """One agent; its objects can be replaced, and its answers held, at any time."""

    def __init__(self, folder: Path, object_id: str = PX) -> None:
        if not SNMPD.exists():
            pytest.skip(f"{SNMPD} is not installed (Debian's package snmpd)")
        self._folder = folder
        self.set({})
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        program = f"{sys.executable} -SE {snmp_objects.__file__} {folder}"
        users = [
            f'createUser {user_name(*names, level)} {PROTOCOLS[names[0]]} "{AUTHENTICATION}" '
            f'{PROTOCOLS[names[1]]} "{PRIVACY}"\nrouser {user_name(*names, level)} {level}\n'
            for names in USERS
            for level in LEVELS
        ]
        versions = [
            f"com2sec of-{version} default {COMMUNITY}-{version}\ngroup by-{version} {version} "
            f"of-{version}\naccess by-{version} '' {version} noauth exact all none none\n"
            for version in VERSIONS
        ]
        file = folder / "snmpd.conf"
        file.write_text(
            f"agentAddress udp:{self.address}\nsysobjectid .{object_id}\n"
            f"rocommunity {COMMUNITY}\nrocommunity public\n"
            f"view all included .1\n{''.join(versions)}"
            f"pass_persist .{PX} {program}\npass_persist .{RPDU2_POWER} {program}\n{''.join(users)}"
        )
        modules = "system_mib,pass_persist,usmConf,usmUser,vacm_conf,snmpEngine"
        words = [str(SNMPD), "-f", "-Le", "-C", "-c", str(file), "-I", modules]
        states = {"SNMP_PERSISTENT_DIR": str(folder / "state"), "SNMPCONFPATH": str(folder)}
        log = folder / "log"
        with log.open("w") as output:
            self._process = subprocess.Popen(
                words, stderr=output, env={**os.environ, **states, "MIBS": ""}
            )
        until(lambda: "NET-SNMP version" in log.read_text())

    def set(self, objects: Objects) -> None:
        """Serve these objects from now on."""
        written = self._folder / "written"
        written.write_text(json.dumps(objects))
        written.replace(self._folder / "objects.json")

    def hold(self) -> None:
        """Hold all answers until ``release``."""
        (self._folder / "hold").touch()

    def release(self) -> None:
        with suppress(FileNotFoundError):
            (self._folder / "hold").unlink()

    def forget(self) -> None:
        """Forget what was asked until now."""
        (self._folder / "asked").unlink()

    def was_asked(self, oid: str) -> bool:
        asked = self._folder / "asked"
        return asked.exists() and oid in asked.read_text().split()

    def close(self) -> None:
        self.release()
        self._process.terminate()
        self._process.wait()
