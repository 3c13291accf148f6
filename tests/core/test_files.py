"""Only files and folders of ours are written: proved by descriptor, with no link on the way."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.second_user import OTHER, as_other, need_second_user, shared_folder
from wattload.core import files
from wattload.core.errors import DataError, ForeignFileError
from wattload.core.files import (
    Folder,
    LockHeldError,
    choose_folder,
    lock_device,
    open_folder,
    read_bounded,
    walk_names,
)

THESIS = "three years of work"


@pytest.fixture
def thesis(tmp_path: Path) -> Path:
    path = tmp_path / "thesis"
    path.write_text(THESIS)
    return path


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Folder]:
    (tmp_path / "ours").mkdir(mode=0o755)
    with open_folder(tmp_path / "ours") as folder:
        yield folder


def link(path: Path, thesis: Path) -> None:
    path.symlink_to(thesis)


def hanging_link(path: Path, thesis: Path) -> None:
    path.symlink_to(thesis.with_name("none"))


def hard_link(path: Path, thesis: Path) -> None:
    path.hardlink_to(thesis)


def pipe(path: Path, thesis: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path, thesis: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)  # the path of a socket has at most 107 bytes
        listener.bind(path.name)


def folder_in_place(path: Path, thesis: Path) -> None:
    path.mkdir()


def device(path: Path, thesis: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this process may not make devices")


def file_of_another(path: Path, thesis: Path) -> None:
    need_second_user()
    path.write_text(THESIS)
    os.chown(path, OTHER, OTHER)


PLANTED = [
    (link, "a symbolic link"),
    (hanging_link, "a symbolic link"),
    (hard_link, r"one of 2 names of the same file \(hard links\)"),
    (pipe, "a pipe, a socket or a device"),
    (unix_socket, "a pipe, a socket or a device"),
    (folder_in_place, "a folder"),
    (device, "a pipe, a socket or a device"),
    (file_of_another, "belongs to nobody, and wattload runs as root; run it as nobody"),
]

USES: dict[str, Callable[[Folder], object]] = {
    "append": lambda folder: folder.append("day_0"),
    "update": lambda folder: folder.update("day_0"),
    "write": lambda folder: folder.write("day_0", "TSV"),
    "read": lambda folder: folder.read("day_0"),
    "lock": lambda folder: folder.lock("day_0"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("planted", PLANTED, ids=[each[0].__name__ for each in PLANTED])
def test_what_is_not_ours_is_neither_written_nor_replaced(
    ours: Folder,
    thesis: Path,
    planted: tuple[Callable[[Path, Path], None], str],
    use: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant, reason = planted
    monkeypatch.chdir(ours.path)
    plant(ours.path / "day_0", thesis)
    before = os.lstat(ours.path / "day_0")
    with pytest.raises(ForeignFileError, match=f"day_0.* {reason}"):
        USES[use](ours)
    assert os.lstat(ours.path / "day_0") == before
    assert [path.name for path in ours.path.iterdir()] == ["day_0"]
    assert thesis.read_text() == THESIS
    assert not thesis.with_name("none").exists()


@pytest.mark.parametrize(
    "plant", [each[0] for each in PLANTED], ids=[each[0].__name__ for each in PLANTED]
)
def test_a_file_is_created_only_where_nothing_is(
    ours: Folder,
    thesis: Path,
    plant: Callable[[Path, Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ours.path)
    plant(ours.path / "day_0", thesis)
    with pytest.raises(ForeignFileError, match="day_0 exists already"):
        ours.create("day_0")
    assert thesis.read_text() == THESIS


@pytest.mark.parametrize("place", ["ours", "ours/a", "ours/a/b"])
def test_no_component_may_be_a_link(ours: Folder, tmp_path: Path, place: str) -> None:
    (tmp_path / "ours/a/b").mkdir(parents=True, mode=0o755)
    (tmp_path / place).rename(tmp_path / "moved")
    (tmp_path / place).symlink_to(tmp_path / "moved")
    with pytest.raises(ForeignFileError, match=f"{place} is a symbolic link"):
        open_folder(tmp_path / "ours", "a", "b")


def test_links_above_are_the_users_choice(ours: Folder, tmp_path: Path) -> None:
    (tmp_path / "mount").symlink_to(tmp_path)
    with open_folder(tmp_path / "mount" / "ours") as folder:
        folder.write("made", "by us")
    assert (tmp_path / "ours/made").read_text() == "by us"


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(ours: Folder, mode: int) -> None:
    below = ours.path / "below"
    below.mkdir()
    below.chmod(mode)
    with pytest.raises(ForeignFileError, match=rf"mode {mode:04o}.*run `chmod go-w {below}`"):
        ours.enter("below")
    with pytest.raises(ForeignFileError, match="chmod go-w"):
        ours.make("below")
    below.chmod(mode & ~0o022)
    ours.enter("below").close()


def test_folders_and_files_are_closed_to_writers_whatever_the_umask(ours: Folder) -> None:
    mask = os.umask(0)
    try:
        ours.make("folder").close()
        ours.write("file", "")
        os.close(ours.append("log"))
        ours.lock("lock").release()
    finally:
        os.umask(mask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in ours.path.iterdir()}
    assert modes == {"folder": 0o755, "file": 0o644, "log": 0o644, "lock": 0o600}


def test_a_folder_of_another_user_is_refused_with_its_owner(ours: Folder) -> None:
    need_second_user()
    ours.make("theirs").close()
    os.chown(ours.path / "theirs", OTHER, OTHER)
    with pytest.raises(
        ForeignFileError,
        match="theirs belongs to nobody, and wattload runs as root; run it as nobody, choose "
        f"another folder, or have an administrator run `chown -R root {ours.path}/theirs`",
    ):
        ours.enter("theirs")


def test_another_user_may_trust_root(tmp_path: Path) -> None:
    need_second_user()
    with shared_folder() as shared:
        (shared / "roots").mkdir(mode=0o755)
        (shared / "roots" / "made").write_text("by root")

        def read() -> None:
            with open_folder(shared / "roots") as folder:
                assert folder.read("made") == b"by root"

        as_other(read)


def test_an_owner_without_a_name_is_a_number(ours: Folder) -> None:
    need_second_user()
    ours.make("theirs").close()
    os.chown(ours.path / "theirs", 4_000_000, 0)
    with pytest.raises(ForeignFileError, match=r"belongs to 4000000, .*run it as 4000000"):
        ours.enter("theirs")


def test_a_swapped_folder_leads_nowhere(ours: Folder, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    with ours.make("data") as data:
        data.write("first", "1")
        (ours.path / "data").rename(ours.path / "moved")
        (ours.path / "data").symlink_to(tmp_path / "outside")
        data.write("second", "2")
        os.close(data.create("third"))
    assert list((tmp_path / "outside").iterdir()) == []
    made = {path.name for path in (ours.path / "moved").iterdir()}
    assert made == {"first", "second", "third"}


def test_no_race_makes_a_link_ours(ours: Folder, thesis: Path) -> None:
    """Another process swaps a file for a link and back while it is opened."""
    path = ours.path / "log"
    ended = threading.Event()

    def swap() -> None:
        (ours.path / "own").touch()
        (ours.path / "bait").symlink_to(thesis)
        while not ended.is_set():
            (ours.path / "next").hardlink_to(ours.path / "own")
            (ours.path / "next").replace(path)
            path.unlink()
            (ours.path / "next").symlink_to(thesis)
            (ours.path / "next").replace(path)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for number in range(2000):
            try:
                if number % 2:
                    descriptor = ours.append("log")
                    os.write(descriptor, b"overwritten")
                    os.close(descriptor)
                else:
                    ours.write("log", "overwritten")
            except (ForeignFileError, OSError):
                pass  # missing just now, a link just now, or one of two names
    finally:
        ended.set()
        swapper.join()
    assert thesis.read_text() == THESIS


def test_a_new_file_has_its_name_only_when_it_is_whole(ours: Folder) -> None:
    ours.write("config.yaml", "old")

    def fail() -> None:
        with ours.replacing("config.yaml") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (ours.path / "config.yaml").read_text() == "old"
    with ours.replacing("config.yaml") as file:
        file.write(b"new")
        assert (ours.path / "config.yaml").read_text() == "old"
    assert [path.name for path in ours.path.iterdir()] == ["config.yaml"]
    assert (ours.path / "config.yaml").read_text() == "new"


def test_an_append_keeps_what_is_there(ours: Folder) -> None:
    for line in ("a\n", "b\n"):
        descriptor = ours.append("log")
        os.write(descriptor, line.encode())
        os.close(descriptor)
    assert ours.read("log") == b"a\nb\n"
    assert ours.read("none") is None


def test_a_file_that_is_long_is_refused(tmp_path: Path) -> None:
    (tmp_path / "record").write_text("x" * 100)
    assert read_bounded(tmp_path / "record", 100) == b"x" * 100
    with pytest.raises(DataError, match="record is longer than 99 bytes"):
        read_bounded(tmp_path / "record", 99)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/motd", "../thesis", "a\0"])
def test_a_name_is_one_component(ours: Folder, name: str) -> None:
    for use in (ours.create, ours.append, ours.read, ours.make, ours.enter, ours.lock):
        with pytest.raises(DataError, match="is not the name of a file"):
            use(name)
    with pytest.raises(DataError, match="is not the name of a file"):
        ours.write(name, "")


def test_a_lock_excludes_and_names_its_holder(ours: Folder) -> None:
    lock = ours.lock("lock")
    with pytest.raises(LockHeldError, match=rf"\(process {os.getpid()}\)"):
        ours.lock("lock")
    lock.release()
    lock.release()
    ours.lock("lock").release()


def test_a_lock_on_a_removed_file_does_not_count(
    ours: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ours.lock("lock")
    take = files._lock

    def remove_before(descriptor: int) -> None:
        if first in files._held:
            (ours.path / "lock").unlink()  # between the open and the flock of the next process
            first.release()
        take(descriptor)

    monkeypatch.setattr(files, "_lock", remove_before)
    second = ours.lock("lock")
    with pytest.raises(LockHeldError):
        ours.lock("lock")
    second.release()


def test_whoever_only_reads_can_not_lock() -> None:
    need_second_user()
    with shared_folder() as shared, choose_folder(shared) as folder:
        folder.lock("lock").release()

        def lock_out() -> None:
            for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
                with pytest.raises(PermissionError):
                    fcntl.flock(os.open(shared / "lock", flags), fcntl.LOCK_EX)

        as_other(lock_out)
        folder.lock("lock").release()


def test_a_device_is_locked_once() -> None:
    lock = lock_device(Path("/dev/full"))
    assert lock is not None
    with pytest.raises(LockHeldError):
        lock_device(Path("/dev/full"))
    lock.release()


def test_device_without_a_node_is_not_locked(tmp_path: Path) -> None:
    assert lock_device(tmp_path / "nvme0") is None


def test_what_another_user_planted_in_a_shared_folder_is_refused(thesis: Path) -> None:
    need_second_user()
    with shared_folder() as shared, choose_folder(shared) as folder:

        def plant() -> None:
            (shared / "link").symlink_to(thesis)
            os.mkfifo(shared / "pipe", 0o666)
            (shared / "file").touch(0o666)
            (shared / "wattload-data").mkdir()

        mask = os.umask(0)
        as_other(plant)
        os.umask(mask)
        for name in ("link", "pipe", "file"):
            for use in (folder.append, folder.update, folder.read, folder.lock):
                with pytest.raises((ForeignFileError, PermissionError)):
                    use(name)
            with pytest.raises(ForeignFileError):
                folder.write(name, "overwritten")
        with pytest.raises(ForeignFileError, match="belongs to nobody"):
            folder.make("wattload-data")
        assert thesis.read_text() == THESIS


def test_names_are_listed_without_following_links(ours: Folder, tmp_path: Path) -> None:
    with ours.make("a") as below:
        below.write("file", "1")
    (ours.path / "a/link").symlink_to(tmp_path)
    assert set(walk_names(ours)) == {"a/", "a/file", "a/link"}


def test_only_an_empty_folder_is_removed(ours: Folder) -> None:
    with ours.make("full") as below:
        below.write("file", THESIS)
    ours.make("empty").close()
    for name in ("full", "empty", "missing"):
        ours.remove_empty(name)
    assert set(walk_names(ours)) == {"full/", "full/file"}
