"""No rank believes to be alone: launchers, MPI libraries and Slurm's steps that disagree."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, command, environment, mpirun, record_of, run_folders
from wattload.core.processes import sees_all_processes
from wattload.run.launcher import is_first_on_host

NULL = ("workload=null", "power=none")
LAUNCHER_VARIABLES = ("PMI_", "PMIX_", "OMPI_", "MV2_", "SLURM_", "MPI_LOCAL", "PALS_", "HYD")
OWN_NAME = ("unshare", "--uts", "sh", "-c")
"""A command with a host name of its own."""


def start(folder: Path, words: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command without the variables of a launcher that these tests may run under."""
    inherited = environment(folder, **variables).items()
    own = {k: v for k, v in inherited if k in variables or not k.startswith(LAUNCHER_VARIABLES)}
    return subprocess.run(
        words,
        env=own,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def refusal(done: subprocess.CompletedProcess[str], folder: Path) -> str:
    """Return the one sentence of a run that was refused, and left no record.

    On a busy host a second rank may not wait long enough for the first one, and say the same.
    """
    (sentence,) = {line for line in done.stderr.splitlines() if line.startswith("wattload: ")}
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "RuntimeWarning" not in done.stderr
    assert not run_folders(folder / "runs")
    return sentence


def refused_untouched(done: subprocess.CompletedProcess[str], folder: Path) -> str:
    """Return the sentence of a run that was refused before it changed anything."""
    sentence = refusal(done, folder)
    assert [path.name for path in folder.iterdir()] == ["target"]
    return sentence


def need_mpi() -> None:
    pytest.importorskip("mpi4py")
    mpirun()


def open_mpi() -> tuple[str, str]:
    """Return Open MPI's launcher and library, which Debian has in ``openmpi-bin``."""
    launcher = shutil.which("mpirun.openmpi")
    libraries = sorted(Path("/usr/lib").glob("*/libmpi.so.40"))
    if launcher is None or not libraries:
        pytest.skip("needs Open MPI (apt-get install openmpi-bin)")
    need_mpi()
    return launcher, str(libraries[0])


def by_open_mpi(launcher: str, words: Sequence[str]) -> list[str]:
    return [launcher, "--allow-run-as-root", "--oversubscribe", "-n", "2", *words]


def is_on_mpich() -> bool:
    question = "from mpi4py import MPI; print(MPI.get_vendor()[0])"
    done = subprocess.run(
        [sys.executable, "-c", question], capture_output=True, text=True, check=False
    )
    return done.stdout == "MPICH\n"


def test_a_variable_of_two_processes_and_an_mpi_of_one_are_refused(tmp_path: Path) -> None:
    need_mpi()
    done = start(tmp_path, command(tmp_path, *NULL), PMIX_SIZE="2")
    sentence = refused_untouched(done, tmp_path)
    assert "started 2 processes (PMIX_SIZE=2, set by " in sentence
    assert "but MPI connects 1: mpi4py uses " in sentence
    assert sentence.endswith("mpirun, or set ranks=1 to run this process alone")


def test_mpich_under_open_mpi_s_launcher_is_refused(tmp_path: Path) -> None:
    """MPICH without PMIx would abort in MPI_Init, in C."""
    launcher, _ = open_mpi()
    if not is_on_mpich():
        pytest.skip("mpi4py is not on MPICH")
    done = start(tmp_path, by_open_mpi(launcher, command(tmp_path, *NULL)))
    sentence = refusal(done, tmp_path)
    assert "OMPI_COMM_WORLD_SIZE=2, set by Open MPI's mpirun" in sentence
    assert "mpi4py uses MPICH" in sentence


def test_open_mpi_under_mpich_s_launcher_is_refused(tmp_path: Path) -> None:
    _, library = open_mpi()
    done = start(tmp_path, command(tmp_path, *NULL, ranks=2), MPI4PY_LIBMPI=library)
    sentence = refusal(done, tmp_path)
    assert "PMI_SIZE=2" in sentence
    assert "mpi4py uses Open MPI" in sentence


def test_open_mpi_under_its_own_launcher_is_one_run_of_two_ranks(tmp_path: Path) -> None:
    launcher, library = open_mpi()
    words = by_open_mpi(launcher, command(tmp_path, *NULL))
    done = start(tmp_path, words, MPI4PY_LIBMPI=library)
    assert done.returncode == 0, done.stderr
    assert record_of(tmp_path).workload.rank_count == 2


@pytest.mark.parametrize(
    "sizes",
    [
        {"OMPI_COMM_WORLD_SIZE": "2", "PMI_SIZE": "1"},
        {"OMPI_COMM_WORLD_SIZE": "1", "PMI_SIZE": "2"},
    ],
)
def test_an_inherited_size_of_one_does_not_vouch_for_a_world_of_one(
    tmp_path: Path, sizes: dict[str, str]
) -> None:
    need_mpi()
    sentence = refusal(start(tmp_path, command(tmp_path, *NULL), **sizes), tmp_path)
    assert "started 2 processes (" in sentence
    assert "but MPI connects 1" in sentence


def test_nor_for_mpich_under_open_mpi_s_launcher(tmp_path: Path) -> None:
    launcher, _ = open_mpi()
    if not is_on_mpich():
        pytest.skip("mpi4py is not on MPICH")
    done = start(tmp_path, by_open_mpi(launcher, command(tmp_path, *NULL)), PMI_SIZE="1")
    assert "OMPI_COMM_WORLD_SIZE=2, set by Open MPI's mpirun" in refusal(done, tmp_path)


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "PMIX_SIZE"])
def test_nor_for_open_mpi_under_mpich_s_launcher(tmp_path: Path, name: str) -> None:
    _, library = open_mpi()
    words = command(tmp_path, *NULL, ranks=2)
    done = start(tmp_path, words, MPI4PY_LIBMPI=library, **{name: "1"})
    assert "(PMI_SIZE=2, set by " in refusal(done, tmp_path)


def test_a_launcher_without_mpi4py_is_refused(tmp_path: Path) -> None:
    need_mpi()
    hidden = tmp_path / "mpi4py"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'mpi4py'\")\n")
    path = os.pathsep.join([str(tmp_path), environment(tmp_path)["PYTHONPATH"]])
    done = start(tmp_path, command(tmp_path, *NULL, ranks=2), PYTHONPATH=path)
    sentence = refusal(done, tmp_path)
    assert "started 2 processes" in sentence
    assert "mpi4py can't be loaded (No module named 'mpi4py')" in sentence


def slurm(**changes: str) -> dict[str, str]:
    """Return the variables that ``srun -n 2`` sets in a task; nothing here has Slurm itself."""
    step = {
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    return {**step, **changes}


def as_task(words: Sequence[str]) -> list[str]:
    """Return a command whose shell is the task of a step; the run is its child."""
    return ["sh", "-c", 'SLURM_TASK_PID=$$ "$@"; exit $?', "task", *words]


def test_a_task_of_a_slurm_step_is_not_alone(tmp_path: Path) -> None:
    need_mpi()
    done = start(tmp_path, as_task(command(tmp_path, *NULL)), **slurm())
    sentence = refusal(done, tmp_path)
    assert (
        "started 2 processes (SLURM_STEP_NUM_TASKS=2, set by srun), but MPI connects 1" in sentence
    )
    assert "srun --mpi=pmix" in sentence


def test_every_task_of_a_step_explains_itself(tmp_path: Path) -> None:
    """``srun`` leaves the others running when one has failed."""
    need_mpi()
    second = slurm(SLURM_PROCID="1", SLURM_LOCALID="1")
    done = start(tmp_path, as_task(command(tmp_path, *NULL)), **second)
    assert "SLURM_STEP_NUM_TASKS=2" in refusal(done, tmp_path)


def test_a_task_in_a_pid_namespace_of_its_own_is_not_alone(tmp_path: Path) -> None:
    """As in a container: the task that started it can't be seen there."""
    need_mpi()
    contain = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*contain, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs root, for a PID namespace")
    done = start(tmp_path, as_task([*contain, *command(tmp_path, *NULL)]), **slurm())
    assert "SLURM_STEP_NUM_TASKS=2" in refusal(done, tmp_path)


def test_a_task_whose_pid_is_not_handed_on_is_known_by_pmix(tmp_path: Path) -> None:
    need_mpi()
    variables = slurm(PMIX_NAMESPACE="slurm.pmix.7.0", PMIX_RANK="0")
    done = start(tmp_path, command(tmp_path, *NULL), **variables)
    assert "SLURM_STEP_NUM_TASKS=2" in refusal(done, tmp_path)


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_NTASKS": "16", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"},  # sbatch -n 16, salloc
        slurm(SLURM_STEP_ID="4294967291", SLURM_STEP_NUM_TASKS="16"),  # a batch script's step
        slurm(SLURM_STEP_ID="4294967290", SLURM_STEP_NUM_TASKS="16"),  # an interactive step
        slurm(SLURM_STEP_NUM_TASKS="1"),
        slurm(SLURM_PROCID="1", SLURM_TASK_PID="1"),  # exported into somebody else's process
    ],
)
def test_other_processes_of_a_slurm_job_are_alone(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    program = "from wattload.run.ranks import connect; print(connect(None).world_size)"
    words = [sys.executable, "-c", program]
    if "SLURM_TASK_PID" in variables and not sees_all_processes():
        pytest.skip("needs the PID namespace of the host")
    done = start(tmp_path, words if "SLURM_TASK_PID" in variables else as_task(words), **variables)
    assert done.stdout == "1\n", done.stderr


def test_ranks_1_overrides_a_launcher_and_the_record_says_so(tmp_path: Path) -> None:
    words = command(tmp_path, *NULL, "ranks=1")
    inherited = {"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALRANKID": "1"}
    done = start(tmp_path, words, **inherited)
    assert done.returncode == 0, done.stderr
    record = record_of(tmp_path)
    assert (record.workload.rank_count, len(record.hosts)) == (1, 1)
    remark = record.workload.remarks[0]
    assert remark.startswith("By ranks=1 this process ran alone, although a launcher started 2")
    assert "PMI_SIZE=2" in remark


def test_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    done = start(tmp_path, command(tmp_path, *NULL, "ranks=3"))
    assert refusal(done, tmp_path).startswith("wattload: ranks=3, but this run has ")


@pytest.mark.parametrize("words", [["plan", "null"], ["settings"], ["clean", "."]])
def test_commands_that_measure_nothing_do_not_look(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "target").mkdir()
    target = [f"target.path={tmp_path / 'target'}"] if words[0] == "plan" else []
    done = start(
        tmp_path, [sys.executable, "-m", "wattload", *words, *target], OMPI_COMM_WORLD_SIZE="2"
    )
    assert done.returncode == 0, done.stderr


def test_an_error_of_a_command_that_measures_nothing_is_printed_by_any_rank(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-m", "wattload", "report", "nothing"]
    done = start(tmp_path, words, PMI_SIZE="2", PMI_RANK="1")
    assert done.returncode == 2
    assert "nothing does not exist" in done.stderr


def with_second(
    folder: Path, script: str, *settings: str, is_split: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run two ranks, the second by a shell script with a UTS namespace of its own.

    MPI counts them as two hosts if they are split.
    """
    need_mpi()
    if subprocess.run([*OWN_NAME, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs root, for a UTS namespace")
    words = command(folder, *(settings or NULL), "target.shared=true")  # both see one folder
    second = [*OWN_NAME, script, "rank", *words]
    variables = {"MPIR_CVAR_ODD_EVEN_CLIQUES": "1"} if is_split else {}
    return start(folder, [mpirun(), "-n", "1", *words, ":", "-n", "1", *second], **variables)


def test_two_hosts_are_one_run(tmp_path: Path) -> None:
    done = with_second(tmp_path, 'hostname elsewhere && MPI_LOCALRANKID=0 exec "$@"')
    assert done.returncode == 0, done.stderr
    record = record_of(tmp_path)
    assert [host.facts.name for host in record.hosts] == [os.uname().nodename, "elsewhere"]


def test_two_hosts_do_not_read_one_meter_of_a_node(tmp_path: Path) -> None:
    meter = ("workload=null", "power=redfish", "power.redfish.url=https://bmc.invalid")
    done = with_second(tmp_path, 'hostname elsewhere && MPI_LOCALRANKID=0 exec "$@"', *meter)
    own = os.uname().nodename
    assert f"redfish is one meter, and 2 hosts ({own}, elsewhere)" in refusal(done, tmp_path)


def test_two_hosts_of_one_name_are_refused(tmp_path: Path) -> None:
    done = with_second(tmp_path, 'MPI_LOCALRANKID=0 exec "$@"')
    assert f"2 hosts are named {os.uname().nodename} (cloned machines?)" in refusal(done, tmp_path)


def test_two_names_of_one_host_are_refused(tmp_path: Path) -> None:
    done = with_second(tmp_path, 'hostname elsewhere && exec "$@"', is_split=False)
    assert f"on 2 by its names ({os.uname().nodename}, elsewhere)" in refusal(done, tmp_path)


def test_a_host_whose_first_rank_its_launcher_numbers_otherwise_is_refused(tmp_path: Path) -> None:
    done = with_second(tmp_path, 'hostname elsewhere && exec "$@"')
    sentence = refused_untouched(done, tmp_path)
    assert "0 of 1 processes on elsewhere are the first there" in sentence
    assert "(here PMI_RANK=1 MPI_LOCALRANKID=1)" in sentence


@pytest.mark.parametrize(
    ("variables", "is_first"),
    [
        ({}, True),
        ({"MPI_LOCALRANKID": "1"}, True),  # of a launcher that has not numbered this process
        ({"PMI_RANK": "2"}, False),
        ({"PMI_RANK": "2", "MPI_LOCALRANKID": "0"}, True),
        ({"PMI_RANK": "2", "MPI_LOCALRANKID": "1"}, False),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, True),
        ({"MV2_COMM_WORLD_RANK": "2", "MV2_COMM_WORLD_LOCAL_RANK": "0"}, True),
        ({"PMI_RANK": "2", "PALS_LOCAL_RANKID": "0"}, True),
        ({"PMI_RANK": "2", "MPI_LOCALRANKID": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "3"}, False),
        ({"SLURM_PROCID": "2", "SLURM_LOCALID": "0", "PMIX_RANK": "2"}, True),
        ({"SLURM_PROCID": "2", "SLURM_LOCALID": "1", "PMIX_RANK": "2"}, False),
        ({"SLURM_LOCALID": "0", "SLURM_STEP_ID": "4294967291", "PMI_RANK": "1"}, False),
    ],
)
def test_the_first_rank_of_a_host_is_known_by_its_launcher(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_first: bool
) -> None:
    """Before MPI is loaded; a task of a step of Slurm has PMIx's variables, a batch script none."""
    for name in os.environ:
        if name.startswith(LAUNCHER_VARIABLES):
            monkeypatch.delenv(name)
    step = slurm(PMIX_NAMESPACE="slurm.pmix.7.0") if "SLURM_LOCALID" in variables else {}
    for name, value in {**step, **variables}.items():
        monkeypatch.setenv(name, value)
    assert is_first_on_host() is is_first


def test_a_launcher_that_numbers_no_ranks_of_a_host_is_enough(tmp_path: Path) -> None:
    need_mpi()
    program = command(tmp_path, *NULL)
    words = [mpirun(), "-n", "2", "env", "-u", "MPI_LOCALRANKID", *program]
    done = start(tmp_path, words)
    assert done.returncode == 0, done.stderr
    assert record_of(tmp_path).workload.rank_count == 2


def test_a_launcher_whose_number_of_processes_was_removed_is_refused(tmp_path: Path) -> None:
    program = command(tmp_path, *NULL)
    need_mpi()
    done = start(tmp_path, [mpirun(), "-n", "2", "env", "-u", "PMI_SIZE", *program])
    sentences = {line for line in done.stderr.splitlines() if line.startswith("wattload: ")}
    assert len(sentences) == 2  # one of each process, none of which runs alone
    assert not run_folders(tmp_path / "runs")
    assert sentences == {
        f"wattload: a launcher numbered this process (PMI_RANK={rank}), but PMI_SIZE is not set, "
        "so how many it started is unknown; keep both variables, remove both, or set ranks=1 to "
        "run this process alone"
        for rank in (0, 1)
    }


def test_ranks_that_another_launcher_numbered_too_are_refused(tmp_path: Path) -> None:
    need_mpi()
    words = command(tmp_path, *NULL, ranks=2)
    sentence = refusal(start(tmp_path, words, OMPI_COMM_WORLD_LOCAL_RANK="1"), tmp_path)
    assert "0 of 2 processes on " in sentence
    assert "(here PMI_RANK=0 MPI_LOCALRANKID=0 OMPI_COMM_WORLD_LOCAL_RANK=1)" in sentence


WITHOUT_CROSS_MEMORY_ATTACH = """
import ctypes, struct
from wattload.run.ranks import connect

LOAD, JUMP_IF_EQUAL, RETURN, EPERM, ALLOW = 0x20, 0x15, 0x06, 0x50001, 0x7FFF0000
PROCESS_VM_READV, PROCESS_VM_WRITEV = 310, 311  # of x86-64
steps = [
    (LOAD, 0, 0, 0),
    (JUMP_IF_EQUAL, 1, 0, PROCESS_VM_READV),
    (JUMP_IF_EQUAL, 0, 1, PROCESS_VM_WRITEV),
    (RETURN, 0, 0, EPERM),
    (RETURN, 0, 0, ALLOW),
]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(filter))
prctl = ctypes.CDLL(None).prctl
NO_NEW_PRIVILEGES, SECCOMP, BY_FILTER = 38, 22, 2
assert prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
assert prctl(SECCOMP, BY_FILTER, program, 0, 0) == 0
world = connect(None)
print([len(each) for each in world.gather(bytes(8_000_000))])
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs the system calls of x86-64")
@pytest.mark.parametrize("mpi", ["MPICH", "Open MPI"])
def test_large_messages_pass_in_a_container_that_forbids_process_vm_readv(
    tmp_path: Path, mpi: str
) -> None:
    program = [sys.executable, "-c", WITHOUT_CROSS_MEMORY_ATTACH]
    if mpi == "MPICH":
        need_mpi()
        done = start(tmp_path, [mpirun(), "-n", "2", *program])
    else:
        launcher, library = open_mpi()
        done = start(tmp_path, by_open_mpi(launcher, program), MPI4PY_LIBMPI=library)
    assert (done.returncode, done.stderr) == (0, "")
    # The launcher may print one rank's text between another's and its end of line.
    assert done.stdout.replace("\n", "") in ("[8000000, 8000000][]", "[][8000000, 8000000]")
