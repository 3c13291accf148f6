"""Questions to a management controller (BMC) over HTTPS: verified, bounded, never led elsewhere."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, Self
from urllib.parse import SplitResult, urljoin, urlsplit

from wattload.core.errors import PowerError, PowerPermissionError
from wattload.power.meterconfig import HTTPS_PORT, RedfishConfig
from wattload.power.sources.redfish_values import is_path

USER_VARIABLE = "WATTLOAD_REDFISH_USER"
PASSWORD_VARIABLE = "WATTLOAD_REDFISH_PASSWORD"
"""Credentials come from the environment of the process that reads, and go to the BMC alone."""

TIMEOUT_S = 5.0
"""How long the BMC may stay silent, and how long an answer may take in all."""
ANSWER_MAX_BYTES = 4 * 1024 * 1024
REDIRECTS_MAX = 3

_PIECE_BYTES = 64 * 1024
_REFUSED = (401, 403)
_REDIRECTS = (301, 302, 303, 307, 308)
_DROPPED = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""What a question meets on a connection that the other side closed while nothing was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bmc:
    """Where the BMC is and how it is asked; ``authorization`` is never shown."""

    host: str
    port: int
    ca_file: str | None
    authorization: str | None = field(repr=False)

    @classmethod
    def of(cls, config: RedfishConfig, environment: Mapping[str, str]) -> Self:
        """Return the configured BMC with the environment's credentials.

        Raises:
            ConfigError: the address is none.
            PowerError: one of user and password is missing.
        """
        config.check()
        host, port = config.address()
        user, password = environment.get(USER_VARIABLE), environment.get(PASSWORD_VARIABLE)
        if (user is None) != (password is None):
            lacking = USER_VARIABLE if user is None else PASSWORD_VARIABLE
            raise PowerError(f"{lacking} is not set; a BMC's user and password come together")
        authorization = None
        if user is not None:
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            authorization = f"Basic {token}"
        return cls(host=host, port=port, ca_file=config.ca_file, authorization=authorization)


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON object, fractions as ``Decimal``, and the BMC's own time of answering if it told."""

    document: Mapping[str, Any]
    date: datetime | None


class RedfishClient:
    """GETs of JSON objects, one at a time, on a connection that is kept open between them.

    Raises:
        PowerError: the CA file can't be read.
    """

    def __init__(self, bmc: Bmc, *, timeout_s: float = TIMEOUT_S) -> None:
        self._bmc = bmc
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._connection: http.client.HTTPSConnection | None = None
        try:
            # The default context verifies certificate and name; there is no way to turn it off.
            self._context = ssl.create_default_context(cafile=bmc.ca_file)
        except OSError as error:
            raise PowerError(
                f"power.redfish.ca_file={bmc.ca_file} can't be used: {error.strerror or error}"
            ) from error

    def get(self, path: str) -> Answer:
        """Return what stands at ``path``.

        Raises:
            PowerPermissionError: the BMC refuses the credentials.
            PowerError: no answer in time, a refused certificate, another status than 200, an answer
                that is too long or no JSON object, a redirect to another host.
        """
        with self._lock:
            for _ in range(REDIRECTS_MAX + 1):
                response, body = self._exchange(path)
                if response.status not in _REDIRECTS:
                    return self._checked(path, response, body)
                path = self._own_path(path, response.headers.get("Location", ""))
        raise PowerError(f"{self._name} redirects more than {REDIRECTS_MAX} times")

    def close(self) -> None:
        """Close the connection; the next question opens another. Safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def _name(self) -> str:
        return f"the BMC {self._bmc.host}:{self._bmc.port}"

    def _exchange(self, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        """Ask; once more where the BMC had closed the connection that was kept."""
        was_kept = self._connection is not None
        try:
            return self._ask(path)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not (was_kept and isinstance(error, _DROPPED)):
                raise self._trouble(error) from error
        return self._exchange(path)

    def _ask(self, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                self._bmc.host, self._bmc.port, timeout=self._timeout_s, context=self._context
            )
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if self._bmc.authorization is not None:
            headers["Authorization"] = self._bmc.authorization
        deadline_s = time.monotonic() + self._timeout_s
        self._connection.request("GET", path, headers=headers)
        response = self._connection.getresponse()
        return response, self._body(response, deadline_s)

    def _body(self, response: http.client.HTTPResponse, deadline_s: float) -> bytes:
        body = bytearray()
        while piece := response.read1(_PIECE_BYTES):
            body += piece
            if len(body) > ANSWER_MAX_BYTES:
                self.close()
                raise PowerError(f"{self._name} answers with more than {ANSWER_MAX_BYTES} bytes")
            if time.monotonic() > deadline_s:
                raise TimeoutError
        response.close()  # read1 leaves it open at its end, and the connection takes no question
        return bytes(body)

    def _trouble(self, error: Exception) -> PowerError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return PowerError(
                f"the certificate of {self._name} is refused ({error.verify_message}); "
                "power.redfish.ca_file= takes the file of the authority that signed it"
            )
        if isinstance(error, TimeoutError):
            return PowerError(f"{self._name} gave no answer within {self._timeout_s:g} s")
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return PowerError(f"{self._name} can't be asked: {reason or type(error).__name__}")

    def _checked(self, path: str, response: http.client.HTTPResponse, body: bytes) -> Answer:
        if response.status in _REFUSED:
            raise PowerPermissionError(
                f"{self._name} refuses to answer ({response.status}); {USER_VARIABLE} and "
                f"{PASSWORD_VARIABLE} must name a user who may read {path}"
            )
        if response.status != http.client.OK:
            raise PowerError(f"{self._name} answers {response.status} to {path}")
        try:
            document = json.loads(body, parse_float=Decimal, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise PowerError(f"{self._name} answers no JSON to {path}: {error}") from error
        if not isinstance(document, dict):
            raise PowerError(f"{self._name} answers no JSON object to {path}")
        return Answer(document, _date(response.headers.get("Date", "")))

    def _own_path(self, path: str, location: str) -> str:
        """Return where a redirect leads to, if that is this BMC."""
        base = f"https://{self._bmc.host}:{self._bmc.port}"
        try:
            target = urlsplit(urljoin(base + path, location))
            is_followed = bool(location) and self._is_own(target) and is_path(target.path)
        except ValueError:
            is_followed = False
        if not is_followed:
            raise PowerError(
                f"{self._name} redirects {path} to another address, which is not followed: "
                "credentials go to the named host alone"
            )
        return target.path

    def _is_own(self, target: SplitResult) -> bool:
        own = ("https", self._bmc.host, self._bmc.port)
        return (target.scheme, target.hostname, target.port or HTTPS_PORT) == own


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except ValueError:
        return None
