"""Configuration: everything there is composes, and what is wrong fails while composing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import ConfigError
from wattload.core.settings import check_settings
from wattload.power.registry import meter
from wattload.run.compose import build_workload, compose, composition
from wattload.run.config import RunConfig, override_of
from wattload.run.config_groups import compose_config, groups, options, values_by_scale
from wattload.run.folder import ascii_name, new_run_id

TARGET = "target.path=/mnt/nvme"
ROOT = Path(__file__).parents[2]


def _options() -> list[tuple[str, str]]:
    return [
        (group, option)
        for group in groups()
        for option in options(group)
        if (group, option) != ("power", "declared")
    ]


NEEDS = {
    ("power", "command"): "power.command.run=joulescope_watts.py",
    ("power", "quarch"): "power.quarch.module=usb::qtl1847-01-016",
    ("power", "redfish"): "power.redfish.url=https://bmc.example",
    ("power", "replay"): "power.replay.path=trace.csv",
    ("power", "scpi"): meter("scpi").settings,
    ("power", "snmp"): meter("snmp").settings,
}
"""Options that stand for nothing without settings of the user's."""


@pytest.mark.parametrize(("group", "option"), _options())
def test_every_yaml_file_composes(group: str, option: str) -> None:
    needed = NEEDS.get((group, option), "").split()
    config, config_values = compose([TARGET, f"{group}={option}", *needed])
    assert isinstance(config, RunConfig)
    assert config_values["target"]["path"] == "/mnt/nvme"
    for name in ("workload", "loader"):
        check_settings(getattr(config, name), name)  # defaults are in their own ranges


@pytest.mark.parametrize("option", options("loader"))
def test_a_loaders_target_makes_the_configuration_that_a_run_gets(option: str) -> None:
    """Which is what makes loaders and stores: whoever instantiates by Hydra gets the same."""
    from hydra.utils import instantiate

    config, config_values = compose([TARGET, f"loader={option}"])
    made = instantiate(config_values["loader"])
    assert made == config.loader


@pytest.mark.parametrize(
    "words",
    [
        ["workload=unet3d", "workload.epochs=3", "seed=7"],
        ["workload.epochs=3", "workload=unet3d", "loader=torch", "label='a, b'"],
        ["experiment=workers", "workload=unet3d", "target.path=[/mnt/a,/mnt/b]", "target.path=/c"],
        ["workload=null", "label=null-${seed}", "load=busy", "load.cpu_share=0.5"],
    ],
)
def test_values_are_set_as_hydra_sets_them(words: list[str]) -> None:
    assert composition([TARGET, *words]).config == compose_config((TARGET, *words)).config


def test_a_sweep_over_values_is_composed_once() -> None:
    before = compose_config.cache_info().misses
    found = [compose([TARGET, "workload=gnn", "load=busy", f"seed={n}"])[0] for n in range(80)]
    assert [each.seed for each in found] == list(range(80))
    assert compose_config.cache_info().misses <= before + 2


def test_no_yaml_file_is_left_out() -> None:
    files = {
        path.relative_to(ROOT / "configs").as_posix() for path in (ROOT / "configs").rglob("*.yaml")
    }
    composed = {f"{group}/{option}.yaml" for group in groups() for option in options(group)}
    nested = {name for name in files if name.count("/") > 1}
    assert files - nested == composed | {"main.yaml"}


@pytest.mark.parametrize("scale", ["demo", "full"])
@pytest.mark.parametrize("workload", options("workload"))
def test_every_workload_has_its_counts_at_every_scale(workload: str, scale: str) -> None:
    config, values = compose([TARGET, f"workload={workload}", f"scale={scale}"])
    assert config.scale.name == scale
    assert values_by_scale([TARGET, f"workload={workload}"])[scale] == values


@pytest.mark.parametrize(
    "profile",
    sorted(
        path.stem
        for path in (ROOT / "configs/power/profile").glob("*.yaml")
        if path.stem != "custom"
    ),
)
def test_every_declared_profile_composes(profile: str) -> None:
    config, _ = compose([TARGET, "power=declared", f"power/profile={profile}"])
    assert config.power.profile.citation


def test_a_custom_profile_takes_its_watts_from_the_command_line() -> None:
    declared = [TARGET, "power=declared", "power/profile=custom"]
    config, _ = compose([*declared, "power.profile.max_w=25"])
    assert config.power.profile.max_w == 25.0
    with pytest.raises(ConfigError, match="neither max_w nor typical_w"):
        compose(declared)


def test_scale_changes_counts_and_nothing_else() -> None:
    """Below ``demo``, no record size, batch, step time or block size may depend on the scale."""
    # Of random reads, file_bytes are how much there is to read from; so is the graph of training,
    # the capacity of a cache, the vectors of an index, and the model that is loaded.
    sizes = ("slice_bytes", "file_bytes", "graph", "capacity_bytes", "vectors", "model", "layers")
    counts = ("count", "duration_s", "epochs", "rounds", "rows", "steps", "users", *sizes)
    # With null, which has no settings of its own, no loader that took one of a workload's composes:
    # so one workload stands for all.
    workloads = [(f"workload={workload}",) for workload in options("workload")]
    loaders = [("workload=null", f"loader={loader}") for loader in options("loader")]
    for chosen in [*workloads, *loaders]:
        values = values_by_scale([TARGET, *chosen])
        quick, full = values["quick"], values["full"]
        assert quick["loader"] == full["loader"]
        differing = {
            key for key in quick["workload"] if quick["workload"][key] != full["workload"][key]
        }
        differing -= {"tokens"}  # how many are made; other settings with the word are sizes
        assert all(any(count in key for count in counts) for key in differing), differing


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "workload.batch_sample=7",
            ["workload.batch_sample", "did you mean workload.batch_samples"],
        ),
        ("workload.batch_samples=seven", ["batch_samples must be an integer, got 'seven'"]),
        ("workload.batchsize=7", ["did you mean workload.batch_samples"]),
        ("power=declared", ["power/profile has no value", "custom"]),
        ("seed", ["malformed override", "write it as KEY=VALUE"]),
        ("unet3d", ["malformed override", "did you mean workload=unet3d?"]),
        ("/mnt/ssd", ["malformed override", "did you mean target.path=/mnt/ssd?"]),
        ("workload", ["malformed override", "one of checkpoint"]),
        ("bogus=3", ["unknown setting bogus; the top level has accelerator"]),
        ("path=/mnt", ["unknown setting path; did you mean target.path?"]),
        ("files=3", ["did you mean workload.file_count?"]),
        ("power.comand.scope=drive", ["did you mean power.command.scope?"]),
        ("queue_depth=3", ["did you mean loader.queue_depth?"]),
        ("Scale=demo", ["did you mean scale?"]),
        ("workload.queue_depth=3", ["did you mean loader.queue_depth?"]),
        ("loader.batch=3", ["unknown setting loader.batch; did you mean loader.prefetch_batches?"]),
        ("load.cpu_share=0.7", ["load.cpu_share is a setting of load=busy, not of the default"]),
        ("workload.zzz.bar=1", ["unknown setting workload.zzz.bar; workload has batch_samples"]),
        ("seed=range(1,3)", ["'seed=range(1,3)' has several values; use wattload run -m"]),
        ("target=/mnt/ssd", ["did you mean target.path=/mnt/ssd?"]),
        ("scale=", ["scale has no value", "one of demo, full, quick"]),
        ("loader==torch", ["unknown option loader==torch; did you mean torch?"]),
        ("accelerator=count=2", ["unknown option accelerator=count=2"]),
        ("target.path=[/a", ["target.path has a list that can't be read, '[/a': a ] is missing"]),
        ("target.path=[/a]]", ["'[/a]]': a [ is missing"]),
        ("target.path=[/a,]", ["'[/a,]': an element is empty; remove the comma"]),
        ("target.path=[a]#b", ["text follows its last ];", """target.path='"[a]b"'"""]),
        (
            "target.path=[/a[1],/b]",
            ["""quote elements that contain brackets""", """target.path='["/a#1","/b[2]"]'"""],
        ),
        ("power.profile={name:x}", ["power.profile takes no {}, got '{name:x}'; set its settings"]),
        ("loader._target_=subprocess.Popen", ["loader._target_ is not a", "set loader= to one of"]),
        ("power._target_=subprocess.Popen", ["power._target_ is not a setting", "set power= to"]),
        ("+workload._args_=[1]", ["workload._args_ is not a setting, as each option has its own"]),
        ("+loader._args_=[1]", ["loader._args_ is not a setting, as", "set loader= to one of"]),
        ("~loader._target_=x", ["loader._target_ is not a setting, as each option has its own"]),
        (
            "++workload._target_=os.system",
            ["got '++workload._target_=os.system'; to change one, write workload._target_=VALUE"],
        ),
        ("+loader.queue_depth=3", ["to change one, write loader.queue_depth=VALUE"]),
        ("~scale=demo", ["scale can't be removed, got '~scale=demo'; use scale= and one of demo,"]),
        ("~power", ["power can't be removed, got '~power'; use power=none"]),
        ("+seed=3", ["settings can't be added or removed, got '+seed=3'; to change one, write"]),
        (
            "hydra/launcher=joblib",
            ["wattload makes its runs one after another", "start processes with --hosts"],
        ),
        ("hydra/sweeper=optuna", ["wattload orders the runs of a sweep itself", "use -m with a,b"]),
        ("hydra.run.dir=/x", ["wattload names the folder of each run itself; use runs=FOLDER"]),
        ("hydra.sweep.dir=/x", ["wattload names the folder of each run itself; use runs=FOLDER"]),
        ("hydra.job.chdir=true", ["a run stays in the current folder"]),
        ("hydra.mode=MULTIRUN", ["it works only in a file of the group experiment; use -m"]),
        ("+hydra.output_subdir=x", ["wattload only composes its configuration with Hydra"]),
        ("hydra.searchpath=[pkg://os]", ["takes folders, got 'pkg://os'", "use --config-dir DIR"]),
        ("hydra.searchpath=/x", ["must be a list of folders, got '/x'; use --config-dir DIR"]),
        ("hydra.searchpath=[/no/such]", ["there is no folder /no/such; name one with files"]),
        (
            "+bogus=1",
            ["added or removed, got '+bogus=1'; unknown setting bogus; the top level has"],
        ),
        (
            "label=${oc.env:HOME}",
            ["label can't be '${oc.env:HOME}': what it reads, such as a pass"],
        ),
        ("loader=${oc.env:HOME}", ["loader must be one of arrow,", "got '${oc.env:HOME}'"]),
        ("target.path=[/a,'${oc.${label}:HOME}']", ["target.path[1] can't be '${oc.${label}:HOME"]),
        ("load._partial_=true", ["load._partial_ is not a setting, as each option has its own"]),
        ("_recursive_=false", ["_recursive_ is not a setting, as each option has its own class"]),
        ("power.profile.max_w=9", ["power.profile is null; add power/profile= and one of cus"]),
        ("power.quarch.port=1", ["power=auto does not read it; add power=quarch"]),
        ("power.command.run=x", ["add power=command or power.beside=[command]"]),
        (
            "target.max_write_bytes=10GB",
            ["an integer in bytes (e.g. 16384), or null, got '10GB'"],
        ),
        ("power.idle_s=10s", ["must be a number in s, or null, got '10s'"]),
        ("power.period_s=1e400", ["power.period_s must be a finite number"]),
        ("runs=", ["runs must be a folder, got ''"]),
        ("workload=unet4d", ["unet4d", "did you mean unet3d", "checkpoint"]),
        ("lable=B", ["lable", "did you mean label"]),
        ("seed=x", ["seed", "x"]),
        ("scale=huge", ["huge", "demo, full, quick"]),
        ("seed=true", ["seed must be an integer, got 'true'"]),
        ("seed=null", ["seed must be an integer, got 'null'"]),
        ("seed=-1", ["seed must be 0 or more, got -1"]),
        ("seed=" + "9" * 30, ["seed must be a 64-bit integer", "30 digits"]),
        ("workload.epochs=" + "9" * 30, ["workload.epochs", "64-bit"]),
        ("workload.check_crc=maybe", ["check_crc must be true or false, got 'maybe'"]),
        ("workload.check_crc=3", ["check_crc must be true or false, got '3'"]),
        ("workload.sizes=foo", ["sizes must be one of matched, dlio, got 'foo'"]),
        ("workload.record_format=null", ["record_format must be text, got 'null'"]),
        ("power.idle_s=[]", ["idle_s must be a number in s, or null, got '[]'"]),
        ("power.idle_s=nan", ["idle_s must be a finite number, got nan"]),
        ("power.hwmon.rails={a:1}", ["rails must be a list such as [a,b], got '{a:1}'"]),
        ("power.beside=snmp", ["beside must be a list such as [snmp], got 'snmp'"]),
        ("power.snmp.outlets=::1/7", ["outlets must be a list such as [::1/7], got '::1/7'"]),
        ("power.hwmon=3", ["power.hwmon must be a group of settings, which are set one by one"]),
        ("workload={a:1}", ["workload must be one of checkpoint", "one by one"]),
        ("loader.block_bytes=1000", ["loader.block_bytes must be a multiple of 4096", "1000"]),
        ("workload.batch_samples=0", ["workload.batch_samples must be 1 or more, got 0"]),
        ("accelerator.count=1000000000", ["accelerator.count must be 1 to 1024"]),
        ("repeat=1000000000", ["repeat must be 1 to 10000"]),
        ("target.max_write_bytes=-1", ["target.max_write_bytes must be 0 or more"]),
        ("label=" + "x" * 4000, ["label must be 1 to 200", "4000 characters"]),
        ("label=''", ["label must be 1 to 200", "got ''"]),
        ("label=' a'", ["label", "without space at its ends"]),
        ("label=\udcff", ["not valid UTF-8"]),
        ("label=${nope}", ["label has an invalid reference", "nope"]),
        ("=3", ["malformed override", "write it as KEY=VALUE"]),
        ("", ["malformed override", "write it as KEY=VALUE"]),
        ("repeat=0", ["repeat", "1 to 10000"]),
        ("target.path=[]", ["target.path"]),
        ("target.path=7", ["target.path"]),
        ("power.state=40", ["power.state", "31"]),
        ("power.source=psu", ["psu", "nvme"]),
        ("workload.[=", ["override"]),
        ("+workload.extra=1", ["extra"]),
        ("scale.name=quick", ["scale.name", "demo, full, quick"]),
        ("scale.allows_root=true", ["scale.allows_root", "each scale has its own guards"]),
        ("sweep=acc", ["acc", "accelerators, knee, none"]),
    ],
)
def test_a_wrong_setting_is_one_sentence(override: str, words: list[str]) -> None:
    given = [override] if override.startswith("target.path") else [TARGET, override]
    with pytest.raises(ConfigError) as caught:
        compose(given)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_an_added_setting_is_sought_in_the_chosen_workload() -> None:
    for chosen in ([], ["power=declared"]):  # which has no profile yet
        with pytest.raises(ConfigError, match=r"removed, got '[+][+]workload.file_count=3'; to"):
            compose([TARGET, "workload=unet3d", *chosen, "++workload.file_count=3"])
    with pytest.raises(ConfigError, match=r"file_count is a setting of .*, not of workload=null"):
        compose([TARGET, "workload=null", "+workload.file_count=3"])


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("wattload.core.errors.ConfigError", "ConfigError is not a workload; set workload= to on"),
        ("wattload.no.such", "can't be imported: No module named 'wattload.no'; set workload= to"),
        ("wattload.core.files.os.system", "can't be imported: No module named 'wattload.core.fil"),
        (
            "wattload.workloads.gnn.workload.Gnn",
            "other settings than the selected workload; set wo",
        ),
    ],
)
def test_a_class_that_is_no_workload_of_this_configuration_is_refused(
    path: str, words: str
) -> None:
    config, _ = compose([TARGET, "workload=null", f"workload._target_={path}"])
    with pytest.raises(ConfigError, match=words):
        build_workload(config)


@pytest.mark.parametrize(
    "label",
    [
        "ü",
        "PS0, Gen5",
        "it's (old)",
        "👩‍👩‍👧",
        "שלום עולם",
        "e\u0301te\u0301",
        "../../etc",
        "-x",
        "true",
        "007",
        "a$b",
        'a "b" c',
        "tail\\",
        "Micron 9550, PS1",
        "<script>alert(1)</script>",
        "ש" * 200,
        "日本 SSD " + "x" * 192,
    ],
)
def test_a_label_is_any_visible_text_and_is_kept(label: str) -> None:
    # A comma separates the values of a sweep, so it needs quotes.
    typed = f"label='{label}'" if "," in label else f"label={label}"
    config, values = compose([TARGET, typed])
    assert (config.label, values["label"]) == (label, label)
    assert re.fullmatch(r"[0-9TZ]+-null(-[A-Za-z0-9._-]+)?-[0-9a-f]{4}", new_run_id("null", label))


def test_a_comma_in_a_label_needs_quotes() -> None:
    with pytest.raises(ConfigError, match="quote a label with a comma"):
        compose([TARGET, "label=Micron 9550, PS1"])
    config, _ = compose([TARGET, 'label="Micron 9550, PS1"'])
    assert config.label == "Micron 9550, PS1"


@pytest.mark.parametrize("path", ["/mnt/ü", "/mnt/my disk (1)", "/mnt/it's", "/mnt/日本", "~/ü"])
def test_a_path_needs_no_quotes(path: str) -> None:
    config, _ = compose([f"target.path={path}"])
    assert config.target.paths() == (Path(path).expanduser(),)
    config, _ = compose([f"target.path=[{path.replace('(1)', '')},/mnt/b]"])
    assert len(config.target.paths()) == 2


@pytest.mark.parametrize(
    ("typed", "paths"),
    [
        ("[/d/x#1,/d/k=v]", ["/d/x#1", "/d/k=v"]),
        ("[/d/a (1), /d/{b}&c;d]", ["/d/a (1)", "/d/{b}&c;d"]),
        ("""["/d/x#1,2",'/d/[b]']""", ["/d/x#1,2", "/d/[b]"]),
        ("/d/[x]", ["/d/[x]"]),
        ("""'[/d/x#1,/d/k=v]'""", ["[/d/x#1,/d/k=v]"]),
    ],
)
def test_odd_elements_of_a_list_stay_elements(typed: str, paths: list[str]) -> None:
    config, _ = compose([f"target.path={typed}"])
    assert config.target.paths() == tuple(Path(path).absolute() for path in paths)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("A", "A"),
        ("Grün 1", "Grun-1"),
        ("../../etc", "etc"),
        ("-x", "x"),
        ("שלום", ""),
        ("👩‍👧", ""),
    ],
)
def test_the_name_of_a_folder_is_derived_from_the_label(label: str, name: str) -> None:
    assert ascii_name(label) == name


@pytest.mark.thorough
@settings(max_examples=15, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_an_override_or_one_sentence(text: str) -> None:
    override = override_of("label", text)
    try:
        config, _ = compose([TARGET, "workload=null", override])
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017 - a label or a sentence is right
    else:
        assert config.label == text


@pytest.mark.parametrize("override", ["loader.block_bytes=1000", "seed=-1", "power.state=40"])
def test_settings_are_checked_even_if_the_workload_does_not_use_them(override: str) -> None:
    with pytest.raises(ConfigError, match=override.partition("=")[0]):
        compose([TARGET, "workload=null", override])


def test_a_missing_target_reports_how_to_name_one() -> None:
    with pytest.raises(ConfigError, match=r"target\.path has no value; e\.g\. target\.path=/mnt"):
        compose([])


def test_a_permission_to_overwrite_a_drive_needs_a_drive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"target\.serial applies to target=block only"):
        compose(["workload=null", f"target.path={tmp_path}", "target.serial=S1"])
