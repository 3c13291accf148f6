"""Slurm on the hosts of namespaces, from Debian's packages; it ends with them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.run.running import until
from tools.cluster.hosts import NAMES, Cluster

CONFIGURATION = f"""\
ClusterName=hosts
SlurmctldHost={NAMES[0]}
SlurmUser=root
AuthInfo=socket=/run/munge.socket
StateSaveLocation=/run/slurmctld
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/builtin
SchedulerParameters=sched_min_interval=0
SelectType=select/cons_tres
SlurmdParameters=config_overrides
NodeName={",".join(NAMES)} CPUs=4
PartitionName=all Nodes=ALL Default=YES
"""

# cgroup.conf: slurmd looks for cgroups even if nothing uses them, and a host here has none.
DAEMONS = f"""
munged --force --socket=/run/munge.socket --key-file="$(dirname "$SLURM_CONF")/munge.key" \
    --pid-file=/run/munged.pid --seed-file=/run/munged.seed --log-file=/run/munged.log
[ "$(hostname)" != {NAMES[0]} ] || slurmctld -L /run/slurmctld.log
slurmd -L /run/slurmd.log
"""


def missing_slurm() -> str | None:
    """Return what this machine lacks for Slurm, or None."""
    tools = ("slurmctld", "slurmd", "srun")
    lacking = [name for name in tools if shutil.which(name) is None]
    if not list(Path("/usr/lib").glob("*/pmix2/lib/libpmix.so")):
        lacking.append("libpmix.so")
    packages = "slurmctld slurmd slurm-client libpmix-dev"
    return f"needs {', '.join(lacking)} (apt-get install {packages})" if lacking else None


def start_slurm(cluster: Cluster) -> dict[str, str]:
    """Start its daemons on all hosts; return the variables of a command that uses it."""
    configuration = cluster.folder / "slurm.conf"
    configuration.write_text(CONFIGURATION)
    (cluster.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    key = cluster.folder / "munge.key"
    key.write_bytes(bytes(range(256)))
    key.chmod(0o400)
    variables = {"SLURM_CONF": str(configuration)}
    for name in NAMES:
        started = cluster.on(name, "sh", "-ec", DAEMONS, **variables)
        assert started.returncode == 0, started
    ready = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
    until(lambda: cluster.on(NAMES[0], *ready, **variables).stdout.strip() == str(len(NAMES)))
    return variables
