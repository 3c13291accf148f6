"""Reports as files: complete or absent, and reproducible byte for byte."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.records import Scenario, write_run
from tests.reports.conftest import arm
from tests.reports.test_commands import call
from wattload.cli import report
from wattload.core.errors import ConfigError, TargetError
from wattload.core.record.file import RECORD_FILE
from wattload.reports.render.output import FORMS, make_report, write_whole

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    for index in range(2):
        write_run(runs, arm("A", index))
        write_run(runs, arm("B", index, rate=0.6e9))
    return runs


def digests(folder: Path, *, cwd: Path, **environment: str) -> list[str]:
    """Return the digests of all forms of a report made by a process of its own, elsewhere."""
    code = (
        "import pathlib, sys, hashlib, locale; locale.setlocale(locale.LC_ALL, ''); "
        "from wattload.reports.render.output import FORMS, make_report; "
        "folder = pathlib.Path(sys.argv[1]); "
        "texts = [make_report([folder], form=form).text for form in FORMS]; "
        "print(*(hashlib.sha256(text.encode()).hexdigest() for text in texts))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, os.path.relpath(folder, cwd)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_a_report_is_the_same_bytes_anywhere(tmp_path: Path, folder: Path) -> None:
    """The order on disk, the folder it is made in, locale, time zone and hash seed differ."""
    again = tmp_path / "elsewhere" / "again"
    for run in sorted(folder.iterdir(), reverse=True):
        shutil.copytree(run, again / run.name)
    other = {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"}
    there = digests(again, cwd=again.parent, **other)
    texts = [make_report([folder], form=form).text for form in FORMS]
    assert there == [hashlib.sha256(text.encode()).hexdigest() for text in texts]


def test_the_suffix_of_the_output_is_its_format(tmp_path: Path, folder: Path) -> None:
    assert call(report, folder, "-o", tmp_path / "a.csv") == 0
    assert (tmp_path / "a.csv").read_text("utf-8").startswith("run")
    with pytest.raises(ConfigError, match="print it from a browser"):
        call(report, folder, "-o", tmp_path / "a.pdf")
    with pytest.raises(ConfigError, match=r"name a file that ends in \.json"):
        call(report, folder, "--format", "json", "-o", tmp_path / "b.csv")


def test_a_report_that_cannot_be_written_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"can't write .*no-folder/page\.html"):
        write_whole("text", tmp_path / "no-folder" / "page.html")
    with pytest.raises(TargetError, match="can't write"):
        write_whole("text", tmp_path)
    assert list(tmp_path.iterdir()) == []


RUN = Scenario(run_id="run-a", seconds=1.0)
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices and mounts")
WRITE = (
    "import sys, pathlib; from wattload.reports.render.output import write_whole; "
    "write_whole('new', pathlib.Path(sys.argv[1]))"
)


def wattload(
    *words: str | Path, stdout: int, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Return how a ``wattload`` of its own ended."""
    return subprocess.run(
        [sys.executable, "-m", "wattload", *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=cwd,
        check=False,
    )


def in_own_mounts(script: str, *words: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Return how a shell script ended that sees mounts of its own; skips where none can be made."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can mount, with unshare")
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script, sys.executable, *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("name", [RECORD_FILE, "throughput.parquet", "power.parquet"])
@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("link", [False, True])
def test_no_file_of_a_run_is_written_over(
    tmp_path: Path, name: str, index: bool, link: bool
) -> None:
    file = write_run(tmp_path / "runs", RUN) / name
    before = file.read_bytes()
    output = file
    if link:
        output = tmp_path / "page.html"
        output.symlink_to(file)
    with pytest.raises(TargetError, match=r"would be lost|a run record"):
        call(report, *(["--index"] if index else []), tmp_path / "runs", "-o", output)
    assert file.read_bytes() == before


OF_A_RUN = (
    "config.yaml",
    "draft.json",
    "journal-0.jsonl",
    "log.jsonl",
    "reads.jsonl",
    "samples-meter.jsonl",
)


@pytest.mark.parametrize("name", OF_A_RUN)
@pytest.mark.parametrize("recorded", [True, False])
def test_neither_is_what_a_run_wrote_beside_its_record_or_before_it(
    tmp_path: Path, name: str, recorded: bool
) -> None:
    whole = write_run(tmp_path / "runs", RUN)
    folder = whole if recorded else tmp_path / "runs" / "cut-short"
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text("of the run")
    with pytest.raises(TargetError, match="belongs to the input runs and would be lost"):
        call(report, tmp_path / "runs", "-o", file)
    assert file.read_text() == "of the run"


@pytest.mark.parametrize("named", ["", "run-a", "run-a/record.json", "link"])
@pytest.mark.parametrize("name", ["sweep-89a87d75.jsonl", "plan.yaml", "bench.json", "all.parquet"])
def test_neither_is_what_a_session_wrote_beside_its_runs(
    tmp_path: Path, name: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    write_run(runs, RUN)
    (tmp_path / "link").symlink_to(runs / "run-a")
    file = runs / name
    file.write_text('{"of": "the session"}')
    monkeypatch.chdir(runs)
    path = Path("../link") if named == "link" else Path(named)
    with pytest.raises(TargetError, match="belongs to the input runs and would be lost"):
        call(report, path, "-o", name)
    assert file.read_text() == '{"of": "the session"}'


def test_a_report_as_json_beside_the_runs_is_made_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path, RUN)
    for output in (tmp_path / "report.json", folder / "report.json"):
        call(report, tmp_path, "--format", "json", "-o", output)
        made = output.read_bytes()
        output.write_bytes(made.replace(b'"by": "label"', b'"by": "target"'))
        call(report, tmp_path, "--format", "json", "-o", output)
        assert output.read_bytes() == made


@pytest.mark.parametrize("found", ["", "[]", '{"format": "other"}', "[" * 100_000, "\udcff"])
def test_json_that_no_report_is_stays(tmp_path: Path, found: str) -> None:
    write_run(tmp_path, RUN)
    file = tmp_path / "report.json"
    file.write_bytes(os.fsencode(found))
    with pytest.raises(TargetError, match="belongs to the input runs and would be lost"):
        call(report, tmp_path, "--format", "json", "-o", file)
    assert file.read_bytes() == os.fsencode(found)


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("old")
    link.symlink_to("page.html")
    with page.open() as reader:
        assert write_whole("new", link) == link
        assert reader.read() == "old"  # who reads the one before reads it whole
    assert link.readlink() == Path("page.html")
    assert page.read_text() == "new"


def test_a_new_report_has_the_default_mode_and_another_keeps_its_own(tmp_path: Path) -> None:
    page, other = tmp_path / "page.html", tmp_path / "other"
    other.touch()
    write_whole("old", page)
    assert page.stat().st_mode == other.stat().st_mode
    page.chmod(0o600)
    write_whole("new", page)
    assert page.stat().st_mode & 0o777 == 0o600


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_whole("new" * 100_000, pipe)
    reader.join(timeout=60)  # a pipe that was replaced has no end
    assert read == ["new" * 100_000]
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@AS_ROOT
def test_a_character_device_is_written_into(tmp_path: Path) -> None:
    node = tmp_path / "null"
    os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    try:
        write_whole("new", node)
    except TargetError:
        pytest.skip("devices are not let through on this file system")
    assert node.is_char_device()


@AS_ROOT
def test_a_block_device_is_refused(tmp_path: Path) -> None:
    node = tmp_path / "none"
    os.mknod(node, 0o666 | stat.S_IFBLK, os.makedev(254, 250_000))  # no driver has this number
    with pytest.raises(TargetError, match="it is a block device, whose data would be lost"):
        write_whole("new", node)
    assert node.is_block_device()


def test_a_read_only_file_system_is_one_sentence(tmp_path: Path) -> None:
    place = tmp_path / "mount"
    place.mkdir()
    script = 'mount -t tmpfs -o ro none "$1" || exit 77; exec "$0" -c "$2" "$1/p.html"'
    done = in_own_mounts(script, place, WRITE)
    if done.returncode == 77:
        pytest.skip("nothing can be mounted here")
    last = done.stderr.decode().splitlines()[-1]
    assert "TargetError" in last
    assert last.endswith("p.html: Read-only file system; use another -o")


def test_a_disk_that_fills_under_standard_output_is_one_sentence(tmp_path: Path) -> None:
    folder, place = write_run(tmp_path, RUN), tmp_path / "mount"
    place.mkdir()
    script = (
        'mount -t tmpfs -o size=64k none "$2" || exit 77; '
        '"$0" -m wattload report "$1" -o - > "$2/p.html"'
    )
    done = in_own_mounts(script, folder, place)
    if done.returncode == 77:
        pytest.skip("nothing can be mounted here")
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert "standard output failed: No space left" in line


def test_standard_output_that_takes_little_at_a_time_gets_all(tmp_path: Path) -> None:
    folder = write_run(tmp_path, RUN)
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    read: list[bytes] = []

    def drain() -> None:
        with os.fdopen(source, "rb") as stream:
            read.append(stream.read())

    reader = threading.Thread(target=drain)
    reader.start()
    done = wattload("report", folder, "-o", "-", stdout=sink)
    os.close(sink)
    reader.join()
    assert (done.returncode, done.stderr) == (0, b"")
    assert read == [make_report([folder]).text.encode()]


def test_a_reader_that_leaves_changes_nothing(tmp_path: Path) -> None:
    source, sink = os.pipe()
    os.close(source)
    done = wattload("report", write_run(tmp_path, RUN), "-o", "-", stdout=sink)
    os.close(sink)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_report_is_text_whatever_the_folders_are_called(tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"r\xff")
    write_run(tmp_path / "runs", RUN)
    try:
        shutil.move(tmp_path / "runs", place)
    except OSError:
        pytest.skip("this file system holds no name that is not UTF-8")
    for form in ("html", "csv"):
        output = place / f"page-{form}"
        done = wattload(
            "report", place, "--format", form, "-o", output, stdout=subprocess.PIPE, cwd=tmp_path
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode() == f"{tmp_path}/r\\xff/page-{form}\n"
        assert "can't be" not in output.read_text(encoding="utf-8")  # traces are read too
