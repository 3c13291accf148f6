"""Hydra's ways on the command line: files of a lab, experiments, ``--cfg``, ``--rerun``."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from tests.run.running import call_here, record_of, run_folder, run_folders
from wattload.core.record.file import read_record
from wattload.run.config_groups import compose_config, options

SHORT = ("workload=null", "power=none")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return tmp_path / "lab"


def write(lab: Path, name: str, text: str) -> Path:
    path = lab / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def wattload(folder: Path, *words: str) -> CompletedProcess[str]:
    (folder / "target").mkdir(exist_ok=True)
    return call_here(folder, "run", *words)


def composed(folder: Path, *words: str) -> list[dict[str, Any]]:
    done = wattload(folder, "--cfg", "job", "--resolve", "target.path=target", *words)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("place", ["file", "command line"])
def test_a_class_outside_of_wattload_is_refused_and_not_imported(
    place: str, tmp_path: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "outsider.py").write_text(f"open({str(marker)!r}, 'w')\nclass W: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    write(lab, "workload/own", "defaults: ['null', _self_]\n_target_: outsider.W\n")
    words = {
        "file": ["-cd", "lab", "workload=own"],
        "command line": ["workload=null", "workload._target_=outsider.W"],
    }
    done = wattload(tmp_path, "target.path=target", *words[place])
    assert done.returncode == 2
    assert "workload._target_ must be a class of wattload, got 'outsider.W'" in done.stderr
    assert not marker.exists()


def test_files_of_a_lab_are_named_where_they_replace_ours_and_are_recorded(
    tmp_path: Path, lab: Path
) -> None:
    text = "defaults: [schema_accelerator, _self_]\nname: h100\nstep_s: {unet3d: 0.1}\n"
    path = write(lab, "accelerator/h100", text)
    done = wattload(tmp_path, "--config-dir", "lab", *SHORT, "target.path=target")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"instead of wattload's own: {path}") == 1
    record = record_of(tmp_path)
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert [file.model_dump() for file in record.config_files] == [
        {"path": str(path), "sha256": digest, "replaces": True}
    ]
    assert record.config["accelerator"]["step_s"] == {"unet3d": 0.1}


@pytest.mark.parametrize(
    ("name", "text", "words", "sentence"),
    [
        ("workload/own", "name: x", ["workload=own"], "the selected workload has no schema"),
        (
            "workload/own",
            "defaults: [unet3d, _self_]\nepoch: 2",
            ["workload=own"],
            "workload/own.yaml: unknown setting workload.epoch; did you mean workload.epochs?",
        ),
        (
            "workload/own",
            "defaults: [unet3d, _self_]\nepochs: x",
            ["workload=own"],
            "workload/own.yaml: workload.epochs must be an integer: Value 'x'",
        ),
        (
            "workload/own",
            "defaults: [dlrm, _self_]\nrounds: x",
            ["workload=own"],
            "workload/own.yaml: workload.rounds must be an integer: Value 'x'",
        ),
        (
            "experiment/own",
            "# @package _global_\n- seed: 3",
            ["workload=null", "experiment=own"],
            "experiment/own.yaml: settings must be KEY: VALUE, not a list",
        ),
        (
            "experiment/own",
            "# @package _global_\ntarget: /mnt/x",
            ["workload=null", "experiment=own"],
            "write `- override /target: NAME` under defaults:",
        ),
        ("workload/own", "a: [b", ["workload=own"], "can't be read: while parsing a flow seq"),
        (
            "load/own",
            "",
            ["workload=null", "load=ow"],
            "unknown option load=ow; did you mean own? load can be bus",
        ),
        (
            "accelerator/own",  # typed without a schema in its file
            "watts: 700",
            ["workload=null", "accelerator=own"],
            "accelerator/own.yaml: unknown setting accelerator.watts; ",
        ),
        (
            "target/own",
            "shared: 7 of 9",
            ["workload=null", "target=own"],
            "target/own.yaml: target.shared must be true or false: Value '7 of 9'",
        ),
        (
            "experiment/own",
            "# @package _global_\nlabel: '${oc.env:HOME}'",
            ["workload=null", "experiment=own"],
            "lab/experiment/own.yaml: label can't be '${oc.env:HOME}': what it reads, such as",
        ),
        (
            "experiment/own",
            "# @package _global_\nhydra: {sweeper: {params: {label: '${oc.env:HOME},b'}}}",
            ["-m", "workload=null", "experiment=own"],
            "own.yaml: hydra.sweeper.params.label can't be '${oc.env:HOME},b': what it reads",
        ),
        (
            "experiment/own",
            "# @package _global_\nhydra: {sweeper: {params: {label: '${hydra.job.id},b'}}}",
            ["-m", "workload=null", "experiment=own"],
            "hydra.sweeper.params.label has an invalid reference: ",
        ),
        (
            "experiment/own",
            "# @package _global_\nlabel: '${seed'",
            ["workload=null", "experiment=own"],
            "label must be text",
        ),
        ("main", "", ["workload=null"], "lab/main.yaml would replace wattload's own; rename it"),
        ("schema_run", "", ["workload=null"], "lab/schema_run.yaml would replace wattload's own"),
        (
            "load/schema_busy",
            "",
            ["workload=null"],
            "schema_busy.yaml would replace wattload's own",
        ),
        (
            "scale/full",
            "defaults: [schema_scale, _self_]\nname: full\nallows_root: true",
            ["workload=null", "scale=full"],
            "a file can't define a scale, as each has its own guards, got 'full'",
        ),
        ("experiment/own", "label: x", ["experiment=own"], "own.yaml must begin with the line # @"),
        (
            "experiment/own",
            "defaults: [override /workload: 'null']\nworkload: {}",
            ["experiment=own"],
            "experiment/own.yaml must begin with the line # @package _global_",
        ),
        (
            "experiment/own",
            "# @package _global_\nscale: demo\nload: busy",
            ["workload=null", "experiment=own"],
            "experiment/own.yaml: load is a group, so it can't be set to a value: write "
            "`- override /load: busy` under defaults:; scale is a group",
        ),
        (
            "experiment/own",
            "# @package _global_\ndefaults: [override /workload: checkpoint]\n"
            "workload: {checkpoint_cuont: 3}",
            ["experiment=own"],
            "unknown setting workload.checkpoint_cuont; did you mean workload.checkpoint_count?",
        ),
        (
            "own",
            "",
            ["workload=null", "experiment=own"],
            "lab/experiment/own.yaml; move own.yaml to ",
        ),
        (
            "experiment/own",
            "",
            ["workload=null", "experiment=lab/experiment/own.yaml"],
            "name it as --config-dir lab experiment=own",
        ),
        (
            "experiment/own",
            "# @package _global_\nhydra: {run: {dir: /x}}",
            ["experiment=own"],
            "hydra.run.dir can't be set: wattload names the folder of each run itself",
        ),
        (
            "experiment/own",
            "# @package _global_\ndefaults: [override /hydra/job_logging: none]",
            ["experiment=own"],
            "hydra.job_logging.root can't be set: wattload only composes",
        ),
        (
            "experiment/own",
            "# @package _global_\nhydra: {sweeper: {params: {seed: '1,2'}}}",
            ["workload=null", "experiment=own"],
            "experiment=own sweeps seed; add -m, or hydra.mode: MULTIRUN in its file",
        ),
        (
            "experiment/own",
            "# @package _global_\nhydra: {sweeper: {params: {seed: '1,2'}}}",
            ["-m", "workload=null", "experiment=own,workers"],
            "experiment can't be swept over own, which is a sweep itself",
        ),
        (
            "experiment/own",
            "# @package _global_\nlabel: x",
            ["experiment=own"],
            "no workload given; add workload=NAME",
        ),
    ],
)
def test_a_fault_in_a_file_is_one_sentence(
    name: str, text: str, words: list[str], sentence: str, tmp_path: Path
) -> None:
    write(tmp_path / "lab", name, text)
    done = wattload(tmp_path, "-cd", "lab", "target.path=target", *words)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_misspelt_experiment_is_refused(tmp_path: Path) -> None:
    done = wattload(tmp_path, "experiment=worker", "target.path=target")
    assert done.returncode == 2
    assert "unknown option experiment=worker; did you mean workers?" in done.stderr


@pytest.mark.thorough
def test_every_experiment_is_a_session_of_its_own(tmp_path: Path) -> None:
    runs = {name: composed(tmp_path, f"experiment={name}") for name in options("experiment")}
    assert [run["label"] for run in runs["loaders"]] == ["direct", "torch"]
    assert [run["label"] for run in runs["power_states"]] == ["PS0", "PS1"]
    assert [run["workload"]["workers"] for run in runs["workers"]] == [1, 2, 4, 8, 16, 24]
    assert all(run["repeat"] == 8 for run in runs["loaders"])
    fewer = composed(tmp_path, "experiment=workers", "workload.workers=1,3")
    assert [run["workload"]["workers"] for run in fewer] == [1, 3]


def test_an_experiment_of_a_lab_makes_its_runs(tmp_path: Path, lab: Path) -> None:
    text = """# @package _global_
        defaults: [override /workload: 'null', override /power: none]
        hydra: {mode: MULTIRUN, sweeper: {params: {accelerator: 'a100,b200', label: 'old,new'}}}
    """
    write(lab, "experiment/own", text)
    done = wattload(tmp_path, "-cd", "lab", "experiment=own", "target.path=target", "label=x")
    assert done.returncode == 0, done.stderr
    records = [read_record(folder) for folder in run_folders(tmp_path / "runs")]
    assert {record.config["accelerator"]["name"] for record in records} == {"a100", "b200"}
    assert [record.label for record in records] == ["x", "x"]


@pytest.mark.parametrize(
    ("swept", "values"),
    [
        ("seed=range(1,4)", [1, 2, 3]),
        ("seed=choice(4,2)", [4, 2]),
        ("seed=sort(4,2)", [2, 4]),
        ("loader=glob(d*)", ["dali", "dcp", "dgl", "direct", "dlio"]),
        ("loader=glob([*], exclude=[[a-c]*,[e-z]*,d*])", None),
        ("seed=glob(*)", None),
        ("seed=shuffle(1,2)", None),
        ("seed=interval(1,2)", None),
    ],
)
def test_values_of_a_sweep(swept: str, values: list[object] | None, tmp_path: Path) -> None:
    words = ("-m", "workload=null", "target.path=target", swept)
    if values is None:
        done = wattload(tmp_path, *words)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
    else:
        key = "label" if swept.startswith("loader") else "seed"
        assert [run[key] for run in composed(tmp_path, *words)] == values


def test_parts_of_the_configuration_and_references_are_printed_as_hydra_does(
    tmp_path: Path,
) -> None:
    def printed(*words: str) -> str:
        done = wattload(tmp_path, "workload=unet3d", "target.path=target", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    package = ("--package", "workload.epochs")
    assert printed("--cfg", "job", *package) == "# @package workload.epochs\n24\n"
    assert "epochs: ${.scales.${scale.name}.epochs}" in printed("--cfg", "job")
    assert "epochs: 24" in printed("--cfg", "all", "--resolve", "--package", "workload")
    assert set(yaml.safe_load(printed("--cfg", "hydra"))) == {"hydra"}
    defaults = [line.split() for line in printed("--info", "defaults").splitlines()]
    assert ["workload/unet3d", "workload", "True", "main"] in defaults
    places = printed("--info", "searchpath", "-cd", str(tmp_path)).splitlines()
    assert places[2].split() == ["--config-dir", f"file://{tmp_path}"]
    done = wattload(tmp_path, "--info", "plugins")
    assert done.returncode == 2
    assert "(choose from" in done.stderr


def test_a_run_is_repeated_from_its_folder(tmp_path: Path, lab: Path) -> None:
    text = "defaults: [schema_accelerator, _self_]\nname: h100\nstep_s: {unet3d: 0.1}\n"
    write(lab, "accelerator/h100", text)
    done = wattload(tmp_path, "-cd", "lab", *SHORT, "target.path=target", "seed=7", "label=first")
    assert done.returncode == 0, done.stderr
    first = run_folder(tmp_path)
    write(lab, "accelerator/h100", text.replace("0.1", "0.2"))  # its values are in the record
    compose_config.cache_clear()  # a command reads each file once
    other = tmp_path / "other"
    other.mkdir()
    done = call_here(other, "run", "--rerun", str(first), "label=second")
    assert done.returncode == 0, done.stderr
    assert f"files have changed since the run: {lab / 'accelerator/h100.yaml'}\n" in done.stderr
    assert "set as recorded, because defaults or files have changed: accel" in done.stderr
    one, two = read_record(first), record_of(other)
    assert (one.label, two.label) == ("first", "second")
    assert two.targets[0].facts.path == one.targets[0].facts.path
    mine = {"label": two.label, "target": two.config["target"]}
    assert two.config == {**one.config, **mine}


@pytest.mark.parametrize("fate", ["gone", "another loader"])
def test_a_run_is_repeated_without_the_files_that_it_was_made_of(
    fate: str, tmp_path: Path, lab: Path
) -> None:
    text = """# @package _global_
        defaults: [override /loader: own, override /accelerator: own, override /power: declared,
            override /power/profile: own]
        seed: 7
    """
    write(lab, "loader/own", "defaults: [direct, _self_]\nqueue_depth: 3\n")
    write(lab, "accelerator/own", "defaults: [h100, _self_]\nname: own\nstep_s: {unet3d: 0.001}\n")
    write(lab, "power/profile/own", "{name: mine, citation: a label, max_w: 9}\n")
    experiment = write(lab, "experiment/own", text)
    words = ("workload=null", "experiment=own", "target.path=target", "power.rest_max_s=0")
    done = wattload(tmp_path, "-cd", "lab", *words)
    assert done.returncode in (0, 3), done.stderr  # a phase may end before the first sample
    first = run_folder(tmp_path)
    if fate == "gone":
        shutil.rmtree(lab)
    else:
        experiment.write_text(text.replace("loader: own", "loader: torch"))
    done = call_here(tmp_path, "run", "--rerun", str(first), "--cfg", "job", "--resolve")
    assert done.returncode == 0, done.stderr
    fault = "files of the run are missing" if fate == "gone" else "files have changed since the run"
    assert f"{fault}: " in done.stderr
    assert str(experiment) in done.stderr
    again = yaml.safe_load(done.stdout)
    recorded = dict(read_record(first).config)
    again["target"]["path"] = recorded["target"]["path"]
    assert again == recorded


def test_a_rerun_repeats_no_permission(tmp_path: Path, lab: Path) -> None:
    text = "# @package _global_\npower: {allow_system_drive: true}\n"
    write(lab, "experiment/own", text)
    permission = "target.max_write_bytes=5000000"
    words = (*SHORT, "target.path=target", permission, "experiment=own")
    done = wattload(tmp_path, "-cd", "lab", *words)
    assert done.returncode == 0, done.stderr
    again = ("--rerun", str(run_folder(tmp_path)), "--cfg", "job")
    done = wattload(tmp_path, *again)
    values = yaml.safe_load(done.stdout)
    assert values["target"]["max_write_bytes"] is None
    assert values["power"]["allow_system_drive"] is False
    assert done.stderr == (
        f"repeats {run_folder(tmp_path).name}\n"
        f"not repeated, because a permission is for one run: {permission} "
        "power.allow_system_drive=true\n"
    )
    values = yaml.safe_load(wattload(tmp_path, *again, permission).stdout)
    assert values["target"]["max_write_bytes"] == 5000000


def test_a_run_with_a_label_is_repeated_as_arms_with_their_own(tmp_path: Path) -> None:
    assert wattload(tmp_path, *SHORT, "target.path=target", "label=first").returncode == 0
    again = ("-m", "--rerun", str(run_folder(tmp_path)))
    done = wattload(
        tmp_path, *again, "loader=direct,torch", "interleave=abba", "repeat=2", "--plan"
    )
    assert done.returncode == 0, done.stderr
    assert "(direct) (torch) direct torch torch direct" in done.stdout
    assert [run["label"] for run in composed(tmp_path, *again, "seed=3,4")] == ["first"] * 2
    done = wattload(tmp_path, *again[1:], "repeat=2", "--plan")
    assert "order" not in done.stdout


def test_a_rerun_names_another_version_and_host_in_a_line_each(tmp_path: Path) -> None:
    assert wattload(tmp_path, *SHORT, "target.path=target").returncode == 0
    folder = run_folder(tmp_path)
    document = json.loads((folder / "record.json").read_text())
    document["software"]["wattload"] = "0.0.1"
    document["hosts"][0]["facts"]["cpu_model"] = "Zuse Z3"
    (folder / "record.json").write_text(json.dumps(document))
    done = wattload(tmp_path, "--rerun", str(folder), "--cfg", "job", "label=again", "seed=3")
    assert done.returncode == 0, done.stderr
    run, version, host = done.stderr.splitlines()
    assert run == f"repeats {folder.name}, with label=again seed=3"
    assert version.startswith("recorded by wattload 0.0.1 (")
    assert host.startswith("another host than the run's: cpu_model ")
    assert host.endswith(" instead of Zuse Z3")


def test_a_run_of_an_experiment_is_repeated_alone(tmp_path: Path, lab: Path) -> None:
    text = """# @package _global_
        defaults: [override /workload: 'null', override /power: none]
        hydra: {mode: MULTIRUN}
        repeat: 2
    """
    write(lab, "experiment/own", text)
    done = wattload(tmp_path, "-m", "-cd", "lab", "experiment=own", "target.path=target")
    assert done.returncode == 0, done.stderr
    first, _ = run_folders(tmp_path / "runs")
    done = wattload(tmp_path, *read_record(first).command[2:])  # as a page shows it
    assert done.returncode == 0, done.stderr
    assert len(run_folders(tmp_path / "runs")) == 3
