"""The mock answers quarchpy's own client as QIS does, so it is more than our own assumption."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from io import StringIO
from typing import Any, cast

import pytest

from tests.power.sources.qis_mock import MODULE, Module, qis

Client = Callable[..., Any]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def client_class() -> Client:
    name = "quarchpy.connection_specific.connection_QIS"
    module = pytest.importorskip(name, reason="quarchpy is not installed", exc_type=ImportError)
    return cast("Client", module.QisInterface)


def test_quarchpy_finds_and_asks_the_module(client_class: Client) -> None:
    with qis() as mock:
        client = client_class(host="127.0.0.1", port=mock.port)
        assert client.qis_scan_devices(scan=False) == [MODULE]
        assert client.send_command("hello?", MODULE).startswith("HD Programmable Power Module")
        assert client.stream_running_status(MODULE) == "Stopped"
        client.disconnect()


def test_quarchpy_streams_the_joules_that_the_mock_says(client_class: Client) -> None:
    module = Module(values=lambda index: (5_000, 200_000 + index, 12_000, 1_000_000))
    with qis(module, real_time=True) as mock:
        client = client_class(host="127.0.0.1", port=mock.port)
        table = StringIO()
        client.start_stream(MODULE, None, None, False, ",", in_memory_data=table)
        time.sleep(0.3)
        client.stopFlagList[client.device_control_index(MODULE)] = False
        for thread in threading.enumerate():
            if thread.name == MODULE:
                thread.join(10)
        header, *rows = table.getvalue().splitlines()
        assert client.deviceDict[MODULE][:2] == [False, "Stopped"]
        client.disconnect()
    assert header.startswith("Time uS,")
    assert header.endswith("5V voltage mV,5V current uA,12V voltage mV,12V current uA")
    assert len(rows) > 3072
    figures = [[int(cell) for cell in row.split(",")] for row in rows]
    assert [figure[0] for figure in figures] == [4 * index for index in range(len(rows))]
    joules = sum(v5 * i5 + v12 * i12 for _, v5, i5, v12, i12 in figures) * 1e-9 * 4e-6
    assert joules == pytest.approx(mock.energy_j(0, len(rows)), rel=1e-12)


def test_quarchpy_sees_an_overrun(client_class: Client) -> None:
    with qis() as mock:
        client = client_class(host="127.0.0.1", port=mock.port)
        client.send_command("rec stream", MODULE)
        mock.produce(10)
        mock.state = "Stopped: Overrun"
        status, stripes = client.stream_get_stripes_text(client.sock, MODULE)
        assert status == "overrun"
        assert stripes.count("\r\n") == 10
        client.disconnect()
