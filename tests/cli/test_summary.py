"""What is printed of a run, and of a session: arms, ratios and verdicts."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, cluster_of, make_cluster, make_run, of_windows
from tests.reports.gpu_reads import reads_run
from tests.reports.random_reads import random_run
from tests.reports.sessions import session
from wattload.cli.outcome import position_line
from wattload.cli.summary import (
    energy_lines,
    print_comparison,
    print_line,
    print_summary,
    summary,
)
from wattload.cli.terminal import spell_what_is_missing
from wattload.core.histogram import Histogram
from wattload.core.record.results import NO_DRIVE, NO_SENSOR, Check, Latency, Verdict, latencies_of
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.runs.energy import phase_energies, power_text, tail_text
from wattload.reports.sections.wording import check_counts
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.subject import make_subject
from wattload.results.labels import label
from wattload.results.quantity import number, quantity
from wattload.session.schedule import SessionPosition

FOLDER = Path("/runs/one")
_PLAIN = re.compile(r"\x1b\[[0-9;]*m")


def check(name: str, verdict: Verdict, cause: str = "") -> Check:
    return Check(name=name, verdict=verdict, sentence=f"This is {name}.", cause=cause)


def record_of(*checks: Check, **scenario: Any) -> RunRecord:
    made, _ = make_run(Scenario(**scenario))
    return made.model_copy(update={"checks": checks} if checks else {})


def latency(phase: str) -> Latency:
    """Return 1,000 reads: p50 and p99 are the ends of two buckets."""
    histogram = Histogram.of([2_080_000] * 900 + [4_190_000] * 100)
    (row,) = latencies_of(histogram, phase=phase, kind="read", operation_bytes=1_000_000)
    return row


def shown(
    record: RunRecord, capsys: pytest.CaptureFixture[str], *, verbose: bool = False
) -> dict[str, str]:
    """Return the lines by their label."""
    print_summary(record, FOLDER, verbose=verbose)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("  ") for line in lines[1:])
    return {"": lines[0]} | {line[2:14].strip(): line[14:] for line in lines[1:]}


def test_the_summary_of_a_run_is_short_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of(
        *[check(f"good_{number}", "pass") for number in range(15)],
        check("short_run_read", "warn"),
        *[check(f"absent_{number}", "not_checked", NO_DRIVE) for number in range(9)],
        label="PS1",
    )
    record = record.model_copy(update={"latencies": (latency("read"),)})
    lines = shown(record, capsys)
    assert len(lines) <= 14
    assert lines[""] == "unet3d, loader direct, scale quick, label PS1: complete"
    assert lines["target"].startswith("/mnt/ssd (")
    assert lines["checks"] == "15 passed, 1 warned, 9 not applicable: no NVMe drive"
    assert lines["warned"] == "short_run_read"
    assert lines["details"] == "wattload check /runs/one"
    assert lines["record"] == "/runs/one/record.json"
    assert lines["report"] == "wattload report /runs/one"
    assert (
        "p50 2.08\N{NO-BREAK SPACE}ms, p99 4.19\N{NO-BREAK SPACE}ms per read of"
        in lines["read rate"]
    )
    assert lines["bytes"].endswith(" of timed phases")
    assert " for the whole run, with data generation, " in lines["time"]


def test_several_hosts_have_a_line_each_and_the_last_to_end_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record, _ = make_cluster(cluster_of("ada", "bob", "cyd", slow="cyd", power="measured", ranks=2))
    warned = tuple(check(f"short_run_read_{host}", "warn") for host in ("ada", "bob", "cyd"))
    failed = tuple(check(f"device_bytes_read_{host}", "fail") for host in ("ada", "bob", "cyd"))
    record = record.model_copy(update={"checks": (*warned, *failed, check("alone_bob", "fail"))})
    print_summary(record, FOLDER, verbose=False)
    text = capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ")
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0].startswith("unet3d, loader direct, scale quick, 6 ranks on 3 hosts, ")
    (hosts,) = (line for line in lines if line.startswith("hosts "))
    assert "cyd ended last, 8.00 s after ada (20 % of read)." in hosts
    assert [line.partition(":")[0] for line in lines if " ranks, MICRON" in line] == [
        "ada",
        "bob",
        "cyd",
    ]
    (last,) = (line for line in lines if line.startswith("cyd: "))
    assert last.startswith(
        "cyd: 2 ranks, MICRON_6550_MTFDLAL61T4TGA S4EVNX0R900002, 48.00 GB read at 1.200 GB/s, "
    )
    assert last.endswith(" Wh, clock ± 0.10 ms")
    assert [line for line in lines if line.startswith("failed ")] == [
        "failed    device_bytes_read (all 3 hosts): e.g. on ada: This is device_bytes_read_ada.",
        "failed    alone_bob: This is alone_bob.",
    ]
    assert "warned    short_run_read (all 3 hosts)" in lines
    (target,) = (line for line in lines if line.startswith("target "))
    assert target.endswith(" on ada, bob and cyd")
    assert lines[-3:] == [
        "details     on ada: wattload check /runs/one",
        "record      ada:/runs/one/record.json",
        "report      on ada: wattload report /runs/one",
    ]


def test_of_many_hosts_only_the_last_to_end_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"node{number}" for number in range(12)]
    record, _ = make_cluster(cluster_of(*names, slow="node7", seconds=2.0))
    print_summary(record, FOLDER, verbose=False)
    text = capsys.readouterr().out
    assert "node7 ended last, " in text
    assert "node8" not in text


def test_a_workload_without_a_loader_names_none(capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of(check("good", "pass"))
    alone = record.workload.model_copy(update={"uses_loader": False})
    lines = shown(record.model_copy(update={"workload": alone}), capsys)
    assert lines[""] == "unet3d, scale quick, label A: complete"


@pytest.mark.parametrize(
    ("cpu_s", "shown_as"),
    [(0.0, "under 0.1 s/GB"), (0.03, "0.3 s/GB"), (0.31, "3.1 s/GB"), (41.27, "412.7 s/GB")],
)
def test_cpu_time_has_the_digits_of_its_ticks(
    capsys: pytest.CaptureFixture[str], cpu_s: float, shown_as: str
) -> None:
    record = record_of(check("good", "pass"))
    windows = tuple(
        window.model_copy(
            update={"cpu_s": cpu_s, "read_bytes": 10**8, "written_bytes": 0} if window.timed else {}
        )
        for window in record.windows
    )
    lines = shown(record.model_copy(update=of_windows(windows)), capsys)
    assert lines["CPU"].replace("\N{NO-BREAK SPACE}", " ") == shown_as


def test_the_figures_are_those_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of(power="measured", virtual=False)
    text = "\n".join(shown(record, capsys).values())
    for metric in record.metrics:
        if metric.headline and metric.value is not None:
            assert quantity(metric.value, metric.unit) in text
    (energy,) = phase_energies(record)
    assert power_text(energy) in text
    assert tail_text(energy) in text
    assert energy.words in text


def energy_of(record: RunRecord) -> list[str]:
    """Return the lines on a run's energy, with plain spaces."""
    text = [line.text.replace("\N{NO-BREAK SPACE}", " ") for line in energy_lines(record)]
    return [line.replace("\N{NARROW NO-BREAK SPACE}", " ") for line in text]


def measured(**changes: Any) -> RunRecord:
    """Return a record with 1092.2 J in the window of 64.4 s and a tail of 7.6 J."""
    record = record_of(power="measured", virtual=False)
    (energy,) = record.power.energy
    figures = {"energy_j": 1092.24, "uncertainty_j": 10.9, "seconds": 64.4, "tail_j": 7.56}
    figures |= {"tail_uncertainty_j": 0.4, "work_uncertainty_j": 11.2, "rest_s": 30.0}
    changed = energy.model_copy(update=figures | changes)
    power = record.power.model_copy(update={"energy": (changed,)})
    return record.model_copy(update={"power": power})


def test_the_energy_is_for_the_work_and_power_is_in_the_window() -> None:
    energy, tail = energy_of(measured())
    assert re.fullmatch(
        r"0\.3055 ± 0\.0031 Wh for the work \(16\.96 W, \S+ MB/s per W in the window\)", energy
    )
    assert tail == (
        "0.3034 ± 0.0030 Wh in the window; tail 7.56 ± 0.40 J within 30.0 s; "
        "measured by a meter or a rail sensor"
    )
    assert len(energy) < 86
    energy, tail = energy_of(measured(is_at_least=True))
    assert energy.startswith("at least 0.3055 ± 0.0031 Wh for the work (")
    assert " in the window; tail at least 7.56 ± 0.40 J" in tail


def test_energy_of_another_run_is_said_first_to_be_replayed() -> None:
    record = measured()
    sources = tuple(
        each.model_copy(
            update={"facts": each.facts and each.facts.model_copy(update={"is_recorded": True})}
        )
        for each in record.power.sources
    )
    power = record.power.model_copy(update={"sources": sources})
    energy, words = energy_of(record.model_copy(update={"power": power}))
    assert energy.startswith("replayed: 0.3055 ± 0.0031 Wh for the work (")
    assert words.endswith("; replayed from another run, not measured here")


def test_an_unknown_uncertainty_has_its_reason() -> None:
    record = measured()
    names = ("uncertainty_j", "work_uncertainty_j", "tail_uncertainty_j")
    missing = dict.fromkeys(names, "the accuracy of replay is not stated")
    energy, words = energy_of(
        measured(**dict.fromkeys(names), missing={**record.power.energy[0].missing, **missing})
    )
    assert energy.startswith("0.3055 Wh for the work (")
    assert "; ± unknown: the accuracy of replay is not stated; measured by" in words


def test_an_energy_without_a_tail_is_in_the_window_and_says_why() -> None:
    record = measured()
    names = ("tail_j", "tail_uncertainty_j", "work_uncertainty_j")
    why = dict.fromkeys(names, "another phase followed without a rest")
    missing = record.power.energy[0].missing
    energy, tail = energy_of(
        measured(**dict.fromkeys(names), rest_s=0.0, missing={**missing, **why})
    )
    assert energy.startswith("0.3034 ± 0.0030 Wh in the window (16.96 W, ")
    assert tail.startswith("for the work unknown (another phase followed without a rest); measured")


def test_bounds_are_neither_in_the_window_nor_for_the_work() -> None:
    energy, words = energy_of(record_of(power="bounds", virtual=False))
    assert "for the work" not in energy + words
    assert words == "bounds from power states, not measured"


def test_a_run_without_a_sensor_says_so_in_three_words(capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of(check("power_coverage", "not_checked", NO_SENSOR))
    assert shown(record, capsys)["energy"] == "not measured (no power sensor)"


def test_failed_checks_have_their_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of(check("cold", "fail"), check("steady", "warn"), check("odd", "not_checked"))
    lines = shown(record, capsys)
    assert lines["checks"] == "1 failed, 1 warned, 1 not checked"
    assert lines[""].endswith(": complete, but 1 check failed")
    assert lines["failed"] == "cold: This is cold."
    assert (lines["warned"], lines["unchecked"]) == ("steady", "odd")
    print_line(record)
    (line, failed) = capsys.readouterr().out.splitlines()
    assert line.startswith("  A           ")
    assert "energy not measured" in line
    assert failed.endswith("cold: This is cold.")


def test_a_headline_that_is_no_rate_is_in_the_line_of_a_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = record_of(workload="unet3d")
    shares = tuple(each for each in record.metrics if each.name == "au_nominal")
    record = record.model_copy(update={"metrics": shares})
    print_line(record)
    value = quantity(shares[0].value, Unit.FRACTION)
    assert f"{label('au_nominal')} {value}, energy" in capsys.readouterr().out


def test_verbose_adds_meanings_and_findings(capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of(check("steady", "warn"), remarks=["Mind the gap."])
    assert "This is steady." not in str(shown(record, capsys))
    lines = shown(record, capsys, verbose=True)
    assert lines["warned"] == "steady: This is steady."
    assert lines["remark"] == "Mind the gap."
    assert record.power.choice in lines["power"]
    assert [*lines][-3:] == ["details", "record", "report"]


def test_one_utilisation_is_printed_with_its_threshold_and_the_others_when_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_summary(record_of(), FOLDER, verbose=False)
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count("AU ") == 1
    assert re.search(r" outcome MLPerf Storage v2.0: AU \S+ % misses 90 %; not a ", printed)
    print_summary(record_of(), FOLDER, verbose=True)
    printed = " ".join(capsys.readouterr().out.split())
    assert re.search(r" figure AU by nominal step time \S+ %: ", printed)


def test_several_causes_are_counted_apart() -> None:
    checks = [
        check("a", "not_checked", NO_SENSOR),
        check("b", "not_checked", NO_SENSOR),
        check("c", "not_checked", NO_DRIVE),
    ]
    assert check_counts(checks) == "3 not applicable (2 no power sensor, 1 no NVMe drive)"
    assert check_counts([]) == "none"


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of(check("a\x1b[31m", "fail"), label="A\x1b[2J")
    text = "\n".join(shown(record, capsys).values())
    assert "\x1b" not in text
    assert r"A\x1b[2J" in text
    assert r"a\x1b[31m" in text
    assert "u001b" not in text, "one form in all output"


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [40, 80])
def test_a_terminal_wraps_texts_but_neither_paths_nor_commands(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    record = record_of(*[check(f"a_check_with_a_long_name_{n}", "warn") for n in range(9)])
    folder = Path("/runs/" + "x" * 100)
    print_summary(record, folder, verbose=False)
    lines = _PLAIN.sub("", stream.getvalue()).splitlines()
    long = [line for line in lines if len(line.rstrip()) > width]
    assert [line.split()[0] for line in long] == ["details", "record", "report"]
    assert f"  report      wattload report {folder}" in lines


@pytest.mark.parametrize("color", [True, False])
def test_colours_are_for_terminals_that_want_them(
    color: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not color:
        monkeypatch.setenv("NO_COLOR", "1")
    print_summary(record_of(check("a", "fail")), FOLDER, verbose=False)
    assert ("\x1b[1;31m" in stream.getvalue()) is color


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_a_terminal_without_unicode_gets_other_spellings(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    spell_what_is_missing()
    record = record_of(power="measured", virtual=False, label="\N{SNOWMAN}")
    print_summary(record, FOLDER, verbose=True)
    print("≤ 5 W and ≥ 3 W")
    print("1\u202f560 reads took 3.2 µs, 20 \u2013 30 °C, 1.5 \u00d7 as many")
    sys.stdout.flush()
    text = raw.getvalue().decode(encoding)
    assert "label ?" in text
    assert "+/-" in text or "±" in text
    assert "<= 5 W and >= 3 W" in text or "≤ 5 W and ≥ 3 W" in text
    (last,) = [line for line in text.splitlines() if "reads took" in line]
    assert last.startswith("1 560 reads took 3.2 ")
    assert "?" not in last


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("posix_bounce", "through host memory (cuFile compatibility mode)"),
        ("host_bounce", "through pinned host memory"),
        ("p2p_pci", "GPUDirect Storage (PCI P2PDMA)"),
    ],
)
def test_reads_into_gpu_memory_name_their_path_and_how_many_took_it(
    word: str, words: str, tmp_path: Path
) -> None:
    run = reads_run(name="a", loader="cufile", word=word, rate=123_436 * 4096 / 30)
    lines = {line.label: line.text for line in summary(run.record, tmp_path)}
    count = "123\u202f452"
    assert lines["path"] == f"{words}, {count} of {count} reads"


def test_small_random_reads_name_their_path_limit_and_cost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = shown(random_run(rate=7e6).record, capsys)
    text = {name: line.replace("\xa0", " ").replace("\u202f", " ") for name, line in lines.items()}
    assert text["path"] == (
        "asked by the GPU, which pulls the blocks through host memory; "
        "asked, taken, answered and delivered: 70 000 000 each"
    )
    assert text["reads"].startswith("7.000 M/s, 3.58 GB/s (3.34 GiB/s)")
    assert text["limit"] == "storage (the link is at 7.2 % of its ceiling, the pollers 81 % busy)"
    assert text["CPU"] == "0.300 s per million reads, 2.1 CPU cores"
    assert "2.00 µJ per read" in text["energy"]


def test_the_hit_rate_of_a_cache_is_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(random_run(rate=7e6, cache_bytes=1 << 24).record, capsys)
    text = {name: line.replace("\xa0", " ").replace("\u202f", " ") for name, line in lines.items()}
    assert text["cache"] == (
        "75.0 % of 280 070 000 requests hit in 16.8 MB of the GPU, 0.025 % merged, 0 % coalesced: "
        "28.0 M/s delivered"
    )
    assert text["path"].endswith("asked, taken, answered and read: 70 000 000 each")
    assert text["reads"].startswith("7.000 M/s, 14.3 GB/s (13.4 GiB/s)")
    assert "cache" not in shown(random_run(rate=7e6).record, capsys)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {},
            r"request until delivered \(\S+( \S+)* timed\): p50 \S+ ms, p99 \S+ ms; "
            r"read at the poller: p50 \S+ ms.*",
        ),
        (
            {"loader": "direct"},
            r"request until delivered: p50 \S+ ms, p99 \S+ ms",
        ),
        (
            {"loader": "mmap"},
            r"request until delivered: p50 \S+ ms, p99 \S+ ms",
        ),
    ],
    ids=["gpu_queue", "direct", "mmap"],
)
def test_the_latencies_of_random_reads_are_named_by_what_they_are(
    changes: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(random_run(rate=0.1e6, **changes).record, capsys)
    assert re.fullmatch(words, lines["latency"].replace("\xa0", " ").replace("\u202f", " "))
    assert "per read" not in lines["reads"]


def test_an_unknown_limit_and_the_page_cache_are_in_the_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = random_run(loader="mmap", cached=0.9999, rate=5.98e6)
    lines = shown(run.record, capsys)
    assert lines["limit"] == "unknown: the page cache served over 99.9\xa0% of the pages"
    assert "the page cache served over 99.9\xa0% of the pages" in lines["path"]


def test_random_reads_without_storage_deliver_no_bytes_of_a_null_engine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = shown(random_run(engine="null").record, capsys)
    assert lines["path"].startswith("no storage was read: requests were answered at once")
    assert "GB/s" not in lines["reads"]
    assert "per W" not in lines["energy"]
    assert "per read" not in lines["energy"]


def test_a_session_names_the_reads_of_each_run(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(random_run(rate=7e6).record)
    assert "reads per second 7.000\xa0M/s" in capsys.readouterr().out


JOURNAL = Path("runs/sweep-1a2b.jsonl")


def steps(rate: float, count: int) -> list[float]:
    return [rate * (1 + 0.002 * (number % 3)) for number in range(count)]


def test_a_session_ends_with_its_winner(capsys: pytest.CaptureFixture[str]) -> None:
    runs = session({"old": steps(1e9, 8), "new": steps(2e9, 8)}, power="measured", virtual=False)
    print_comparison(runs, JOURNAL)
    text = capsys.readouterr().out.replace("\u00a0", " ")
    subject = make_subject(runs)
    (group,) = subject.groups
    row = next(row for row in compare(subject, group) if row.quantity.unit == "B/s")
    assert row.call == "b"
    assert row.effect is not None
    assert f"new: {number(row.effect.ratio, 3)}\u00d7 as fast (95 % CI " in text
    assert "read rate: new wins" in text
    assert "energy for the work, read: new: " in text
    assert "16 runs" in text
    assert "energy" in text
    trust, report, finding = (line.split(None, 1) for line in text.splitlines()[-3:])
    assert trust == ["trust", "medium confidence: host ceiling unknown"]
    assert report == ["report", f"wattload report {JOURNAL}"]
    assert finding[0] == "finding"
    assert finding[1].startswith("new finishes an epoch 2.00\u00d7 as fast and uses ")


def test_too_few_pairs_have_no_winner(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(session({"A": steps(1e9, 2), "B": steps(2e9, 2)}), JOURNAL)
    text = capsys.readouterr().out
    assert "inconclusive (2 pairs; 6 needed)" in text
    assert "wins" not in text
    assert text.count("not measured") == 3
    assert max(map(len, text.splitlines()[:-1])) <= 100  # the finding is a sentence of any length


def test_arms_are_listed_with_the_means_that_their_ratio_divides(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_comparison(session({"A": [1e9, 4e9], "B": [1e9, 1e9]}), JOURNAL)
    text = capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ")
    assert "2.000 GB/s (CV " in text
    assert "A: 2.00\N{MULTIPLICATION SIGN} as fast" in text


def test_one_arm_is_listed_without_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(session({"A": steps(1e9, 3)}), JOURNAL)
    text = capsys.readouterr().out
    assert "verdict" not in text
    assert "CV " in text


def test_three_arms_are_listed_without_a_winner(capsys: pytest.CaptureFixture[str]) -> None:
    rates = {"A": steps(1e9, 2), "B": steps(2e9, 2), "C": steps(3e9, 2)}
    print_comparison(session(rates), JOURNAL)
    text = capsys.readouterr().out
    assert "too few runs to show a difference (2 runs each; 5 needed; " in text
    assert "verdict" not in text
    assert "ratio" not in text


def test_a_run_of_a_session_says_where_it_stands() -> None:
    position = SessionPosition(number=7, count=16, left_s=550, name="B")
    assert position_line(position) == "run 7 of 16, about 9 min left: B"
    assert position_line(SessionPosition(number=1, count=None, left_s=None, name="")) == "run 1"
    for seconds, words in ((3, "10 s"), (44, "40 s"), (59, "1 min"), (5400, "1 h 30 min")):
        assert words in position_line(SessionPosition(number=1, count=2, left_s=seconds, name=""))


def test_runs_of_a_fixed_time_are_listed_with_what_a_joule_pays_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_comparison(
        [random_run(name=name, repeat=place) for place, name in enumerate("ab")], JOURNAL
    )
    text = capsys.readouterr().out
    assert "reads per joule" in text
    assert "not measured" not in text
