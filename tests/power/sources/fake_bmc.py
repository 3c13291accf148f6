"""A management controller for tests: a real HTTPS server with its own certificate.

The documents follow DMTF's schemas (DSP8010) of Chassis, EnvironmentMetrics, Sensor and Drive. Any
answer can be replaced, by path.
"""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

USER, PASSWORD = "monitor", "s3cret-of-the-bmc"
HOST = "localhost"

METRICS = "/redfish/v1/Chassis/1U/EnvironmentMetrics"
SENSOR = "/redfish/v1/Chassis/1U/Sensors/TotalPower"
DRIVE_METRICS = "/redfish/v1/Chassis/1U/Drives/Bay1/EnvironmentMetrics"
NOW_S = 1_700_000_000
"""The BMC's clock, in seconds since 1970."""


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def documents() -> dict[str, Any]:
    """Return a chassis with power, energy, a Sensor of the power, and two drives."""
    drives = "/redfish/v1/Chassis/1U/Drives"
    return {
        "/redfish/v1/Chassis": {"Members": [link("/redfish/v1/Chassis/1U")]},
        "/redfish/v1/Chassis/1U": {
            "Id": "1U",
            "EnvironmentMetrics": link(METRICS),
            "Drives": link(drives),
            "Links": {"Drives": [link(f"{drives}/Bay1")]},
        },
        METRICS: {
            "PowerWatts": {"DataSourceUri": SENSOR, "Reading": 374.5},
            "EnergyJoules": {"Reading": 123456789},
            "EnergykWh": {"Reading": 34.293},
        },
        SENSOR: {
            "ReadingType": "Power",
            "Reading": 374.5,
            "ReadingTime": "2023-11-14T22:13:19Z",
            "ReadingAccuracy": 3.745,
            "SensingInterval": "PT2S",
        },
        drives: {"Members": [link(f"{drives}/Bay1"), link(f"{drives}/Bay2/")]},
        f"{drives}/Bay1": {
            "SerialNumber": "SERIAL1 ",
            "EnvironmentMetrics": link(DRIVE_METRICS),
        },
        f"{drives}/Bay2": {"SerialNumber": None},
        DRIVE_METRICS: {"PowerWatts": {"Reading": 12.25}, "EnergykWh": {"Reading": 5.5}},
    }


@dataclass(frozen=True)
class Raw:
    """A raw answer: ``pieces`` of the body are sent ``delay_s`` apart."""

    status: int = 200
    pieces: tuple[bytes, ...] = (b"{}",)
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    hangs_up: bool = False


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate and its key."""

    certificate: Path
    key: Path

    @classmethod
    def make(cls, folder: Path, names: str) -> Certificate:
        """Create one for ``names`` (as in ``subjectAltName``) with the program openssl."""
        if shutil.which("openssl") is None:
            pytest.skip("the program openssl is not installed")
        made = cls(folder / "bmc.pem", folder / "bmc.key")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", "/CN=bmc", "-addext", f"subjectAltName={names}",
             "-keyout", str(made.key), "-out", str(made.certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        return made


class FakeBmc:
    """Serves ``answers`` on its own port until it is closed; ``asked`` has the requested paths.

    It answers while ``gate`` is open, and hangs otherwise.
    """

    def __init__(self, certificate: Certificate) -> None:
        self.answers: dict[str, Any] = documents()
        self.requested: list[str] = []
        self.closing: list[Any] = []
        self.gate = threading.Event()
        self.gate.set()
        self.authorizations: set[str | None] = set()
        self.connection_count = 0
        self.allowed: str | None = (
            "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        )
        self.date: str | None = formatdate(NOW_S, usegmt=True)
        self.certificate = certificate
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        self._server = _Server(self, context)
        self.port = int(self._server.server_address[1])
        self.url = f"https://{HOST}:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """Stop the server and close the connections that a test left open."""
        for each in self.closing:
            each.close()
        self._server.shutdown()
        self._server.drop_all()
        self._server.server_close()

    def drop_connections(self) -> None:
        """Close the connections that clients keep open, as an idle BMC does."""
        self._server.drop_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, bmc: FakeBmc, context: ssl.SSLContext) -> None:
        self.bmc = bmc
        self._context = context
        self._open: list[ssl.SSLSocket] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(10)
            wrapped = self._context.wrap_socket(request, server_side=True)
        except OSError:  # a client that refuses the certificate ends the handshake
            return
        self._open.append(wrapped)
        self.bmc.connection_count += 1
        with wrapped:
            super().finish_request(wrapped, client_address)

    def drop_all(self) -> None:
        while self._open:
            wrapped = self._open.pop()
            try:
                wrapped.shutdown(2)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: clients may disconnect at any time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        bmc = self.server.bmc
        bmc.requested.append(self.path)
        bmc.gate.wait(10)
        bmc.authorizations.add(self.headers["Authorization"])
        answer = bmc.answers.get(self.path, Raw(404))
        if bmc.allowed is not None and self.headers["Authorization"] != bmc.allowed:
            answer = Raw(401)
        if not isinstance(answer, Raw):
            answer = Raw(pieces=(json.dumps(answer).encode(),))
        if answer.hangs_up:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        if bmc.date is not None:
            self.send_header("Date", bmc.date)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(sum(map(len, answer.pieces))))
        self.end_headers()
        for piece in answer.pieces:
            self.wfile.write(piece)
            self.wfile.flush()
            time.sleep(answer.delay_s)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
