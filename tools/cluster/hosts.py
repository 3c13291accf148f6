"""Three hosts of namespaces on this machine: each has its network, processes, files and drive.

As a program it makes them, runs a command in the checkout on the first one (else a shell), and
ends them::

    python -m tools.cluster.hosts mpirun -hosts node1,node2,node3 -n 3 hostname

It needs root, ``ip`` (iproute2) and ``sshd`` (openssh-server).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = ("node1", "node2", "node3")
DRIVE = "/srv"
"""Where each host has its own drive, of 2 GiB in memory: a loop device with ext4."""
RUNS = "/tmp/runs"
"""Where each host has the records of its runs."""
RUN = (
    *(sys.executable, "-m", "wattload", "run"),
    *(f"target.path={DRIVE}", f"runs={RUNS}"),
)
CLOCK_STEP_NS = 86_400 * 10**9
"""How far CLOCK_MONOTONIC of each host is ahead of that of the one before it; see switch.sh."""
VARIABLES = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests/plugin'}", "WATTLOAD_STATE_DIR": "/tmp/state"}
DEADLINE_S = 300.0
INIT = ("sleep infinity", "sshd: /usr/sbin/sshd [listener]")


def missing() -> str | None:
    """Return what this machine lacks for such hosts, or None."""
    if os.geteuid() != 0:
        return "only root can make hosts of namespaces"
    for tool, package in (
        ("ip", "iproute2"),
        ("sshd", "openssh-server"),
        ("ssh", "openssh-client"),
    ):
        if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"needs {tool} (apt-get install {package})"
    made = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--time", "--fork", "true"],
        capture_output=True,
        check=False,
    )
    return f"this machine makes no namespaces: {made.stderr!r}" if made.returncode else None


class Cluster:
    """Running hosts. They are named by :data:`NAMES`; the first one is where jobs are started."""

    def __init__(self, folder: Path, switch: int, pids: Mapping[str, int]) -> None:
        self.folder = folder
        """A folder that they share, at this path on each, as on a shared file system."""
        self._switch = switch
        self._pids = pids

    def words(self, host: str, *command: str) -> list[str]:
        """Return the command line that runs a command on a host, in ``/tmp``."""
        enter = ["nsenter", "--target", str(self._pids[host])]
        return [
            *enter,
            "--net",
            "--uts",
            "--mount",
            "--pid",
            "--ipc",
            "--time",
            "env",
            "-C",
            "/tmp",
            *command,
        ]

    def on(self, host: str, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end, whatever its exit status."""
        return subprocess.run(
            self.words(host, *command),
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def mpirun(
        self, *settings: str, ranks: int = 3, open_mpi: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run wattload over the hosts from the first one, on their drives, to its end."""
        passed = {**VARIABLES, **variables}
        words = launcher(ranks=ranks, open_mpi=open_mpi, variables=list(passed))
        return self.on(NAMES[0], *words, *RUN, *settings, **passed)

    @contextmanager
    def started(
        self,
        *settings: str,
        ranks: int = 3,
        open_mpi: str = "",
        module: str = "wattload",
        **variables: str,
    ) -> Iterator[subprocess.Popen[str]]:
        """Start the same, and kill its launcher if the block leaves it behind.

        ``module`` is the program that stands for wattload.
        """
        passed = {**VARIABLES, **variables}
        words = launcher(ranks=ranks, open_mpi=open_mpi, variables=list(passed))
        run = (*RUN[:2], module, *RUN[3:])
        with subprocess.Popen(
            self.words(NAMES[0], *words, *run, *settings),
            env={**os.environ, **passed},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def files(self, host: str, path: str) -> Path:
        """Return where this machine sees a path of a host."""
        return Path(f"/proc/{self._pids[host]}/root{path}")

    def processes(self, host: str) -> dict[int, str]:
        """Return the command lines of what runs on a host, by its own PIDs, beyond its sshd."""
        found: dict[int, str] = {}
        for entry in self.files(host, "/proc").glob("[0-9]*/cmdline"):
            try:
                line = entry.read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue  # it has ended
            if line and entry.parent.name != "1" and not line.startswith(INIT):
                found[int(entry.parent.name)] = line
        return found

    def cut(self, host: str) -> None:
        """Take a host off the network: what it sends and is sent is lost, without an error."""
        self._ip("link", "set", host, "down")

    def restore(self, host: str) -> None:
        self._ip("link", "set", host, "up")

    def received_bytes(self, host: str) -> int:
        """Return what has reached a host by network, in B."""
        return int(self.files(host, "/sys/class/net/eth0/statistics/rx_bytes").read_text())

    def written_bytes(self, host: str) -> int:
        """Return what a host's drive has written, by its block counters, in B."""
        device = self.on(
            host, "findmnt", "--noheadings", "--output", "SOURCE", DRIVE
        ).stdout.strip()
        counters = (Path("/sys/class/block") / Path(device).name / "stat").read_text().split()
        return int(counters[6]) * 512

    def clear(self) -> None:
        """Reconnect all hosts, end what still runs on them, and remove what was written."""
        for host in NAMES:
            self.restore(host)
            for pid in self.processes(host):
                self.on(host, "kill", "-KILL", str(pid))
        self.clear_files()

    def clear_files(self) -> None:
        """Empty the drives, ``/tmp`` and ``/dev/shm`` of all hosts, and remove shared runs."""
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        for host in NAMES:
            # Never through a mount: the checkout may be below /tmp.
            remove = f"find {DRIVE} /tmp /dev/shm -xdev -mindepth 1 -delete"
            self.on(host, "sh", "-c", f"mountpoint --quiet {DRIVE} && {remove}")

    def _ip(self, *words: str) -> None:
        subprocess.run(
            ["nsenter", "--target", str(self._switch), "--net", "ip", *words], check=True
        )


@contextmanager
def running_hosts() -> Iterator[Cluster]:
    """Make the hosts. Nothing of them is left in the end; if this process is killed, only files."""
    folder = Path(tempfile.mkdtemp(prefix="wattload-hosts-"))
    switch = None
    try:
        _lay_out(folder)
        switch = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", Path(__file__).parent / "switch.sh",
             folder, ROOT, *NAMES],
            stdin=subprocess.PIPE,
        )  # fmt: skip
        ids = [folder / f"{name}.pid" for name in NAMES]
        _wait(lambda: all(path.exists() for path in ids), switch)
        pids = dict(zip(NAMES, (int(path.read_text()) for path in ids), strict=True))
        yield Cluster(folder, switch.pid, pids)
    finally:
        if switch is not None and switch.stdin is not None:
            switch.stdin.close()  # switch.sh reads it: when it ends, the kernel ends the rest
            switch.wait()
            _wait(lambda: not _loop_devices(folder))
        shutil.rmtree(folder)


def launcher(
    *,
    ranks: int = 3,
    hosts: Sequence[str] = NAMES,
    open_mpi: str = "",
    variables: Sequence[str] = (),
) -> list[str]:
    """Return the words of mpirun that spread ranks evenly over hosts.

    They are MPICH's of this environment, or those of an Open MPI, of which ssh carries on only the
    named variables.
    """
    slots = -(-ranks // len(hosts))
    listed = ",".join(f"{name}:{slots}" for name in hosts)
    if not open_mpi:
        return [str(Path(sys.executable).parent / "mpirun"), "-hosts", listed, "-n", str(ranks)]
    named = [word for name in variables for word in ("-x", name)]
    return [open_mpi, "--allow-run-as-root", *named, "--host", listed, "-n", str(ranks)]


def _lay_out(folder: Path) -> None:
    """Write what the hosts have in common."""
    folder.chmod(0o755)
    lines = [f"10.77.0.{number} {name}\n" for number, name in enumerate(NAMES, start=1)]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")]
    subprocess.run(key, check=True)


def _loop_devices(folder: Path) -> str:
    listed = subprocess.run(["losetup", "--all"], capture_output=True, text=True, check=True)
    return "\n".join(line for line in listed.stdout.splitlines() if folder.name in line)


def _wait(condition: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"the hosts did not start (exit status {process.returncode})")
        if time.monotonic() > deadline_s:
            raise TimeoutError("the hosts did not start or end in time")
        time.sleep(0.05)


def main() -> int:
    reason = missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    with running_hosts() as cluster:
        return subprocess.run(
            cluster.words(NAMES[0], "env", "-C", str(ROOT), *(sys.argv[1:] or ["bash"])),
            check=False,
        ).returncode


if __name__ == "__main__":
    raise SystemExit(main())
