"""Records mutated at random: every format of a report, the index and ``check`` give an answer."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records import Scenario, write_run
from tests.training import epoch, facts_of, program_epoch
from wattload.__main__ import main
from wattload.core.errors import RecordError
from wattload.core.record.file import BLANK, RECORD_FILE, seal_of
from wattload.reports.render.output import FORMS
from wattload.results.training.facts import Program

PROGRAM = "run-of-a-program"
MARKUP = "<script>alert(1)</script>\"'&\x01\x00\ufffe\u202e\U0001f600{{ 7 }}${x}"
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 10**400, 1e308, -1e308, 5e-324, "", MARKUP, "x" * 5000, "[" * 5000,
    [], {}, [[]], {"a": []}, "\ud800", "2026-13-45T99:99:99Z", "../../etc/passwd", "\n\t",
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two arms of two runs, and a run of a program that owns the loop."""
    folder = tmp_path_factory.mktemp("good")
    for index in range(4):
        name = "AB"[index % 2]
        scenario = Scenario(
            run_id=f"run-{index}", label=name, order=index, seconds=2.0, power="measured",
            virtual=False,
        )  # fmt: skip
        write_run(folder, scenario)
    program = Program(version="2.0.0", command=("dlio",), epochs=(program_epoch(),))
    facts = facts_of([epoch([0.1] * 4, [0.3] * 4, step_s=None)], program=program)
    scenario = Scenario(
        run_id=PROGRAM, label="C", loader="dlio", order=4, facts=facts.model_dump(mode="json"),
        settings=facts.settings.model_dump(),
    )  # fmt: skip
    write_run(folder, scenario)
    return folder


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a document with each of its keys."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(pairs):
        yield node, key
        if isinstance(value, dict | list):
            yield from places(value)


def mutate(document: Any, chance: random.Random, texts_only: bool) -> None:
    """Change some values of a document; ``texts_only`` puts markup into texts alone."""
    found = [
        (node, key) for node, key in places(document)
        if not texts_only or (isinstance(node[key], str) and len(node[key]) > 0)
    ]  # fmt: skip
    for node, key in chance.sample(found, min(chance.randint(1, 40), len(found))):
        if isinstance(node, dict) and key not in node:
            continue
        if isinstance(node, list) and key >= len(node):
            continue
        if texts_only:
            node[key] = f"{node[key]}{MARKUP}"
        elif chance.random() < 0.2 and isinstance(node, dict):
            del node[key]
        else:
            node[key] = chance.choice(VALUES)


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[dict[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.scripts.append(dict(attrs))


def answers(run: Callable[[list[str]], int], folder: Path, capsys: Any) -> None:
    """Make every report of a folder; each is a report or one sentence."""
    out = folder.parent / "out"
    commands = [["report", str(folder), "--format", form, "-o", str(out)] for form in FORMS]
    commands += [["report", str(folder), "--redact", "-o", str(out)]]
    commands += [["report", "--index", str(folder), "-o", str(out)], ["check", str(folder)]]
    for command in commands:
        out.unlink(missing_ok=True)
        status = run(command)
        said = capsys.readouterr().err
        assert "Traceback" not in said
        assert "--debug shows the traceback" not in said, said
        assert status in (0, 2, 3), said
        if "csv" not in command and out.exists() and out.read_bytes()[:1] == b"<":
            scripts = Tags(out.read_text("utf-8")).scripts
            own = 0 if "svg" in command else 1 if "--index" in command else 2
            assert len(scripts) == own
            assert "<script>alert" not in out.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("texts_only", [True, False])
def test_a_mutated_record_gives_a_report_or_a_sentence(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], texts_only: bool
) -> None:
    @settings(max_examples=4, deadline=None)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        chance = random.Random(seed)
        folder = tmp_path / "runs"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        for file in folder.glob(f"*/{RECORD_FILE}"):
            if chance.random() < 0.5:
                document = json.loads(file.read_text())
                mutate(document, chance, texts_only)
                file.write_text(json.dumps(document, indent=1))
        answers(main, folder, capsys)

    check()


NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.floats(),
    st.integers(-(10**30), 10**30),
    st.sampled_from([None, "", "1", True, [], {}, 1e308, -1e308, 10**400]),
)


@pytest.mark.slow
@pytest.mark.parametrize("run_id", ["run-0", PROGRAM])
def test_changed_figures_of_a_sealed_record_give_a_report_or_a_sentence(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], run_id: str
) -> None:
    document = json.loads((good / run_id / RECORD_FILE).read_text())
    figures = [
        number
        for number, (node, key) in enumerate(places(document))
        if isinstance(node[key], int | float) and not isinstance(node[key], bool)
    ]
    folder = tmp_path / "runs"
    shutil.copytree(good, folder)

    @settings(max_examples=40, deadline=None)
    @given(st.dictionaries(st.sampled_from(figures), NUMBERS, min_size=1, max_size=4))
    def check(changes: dict[int, Any]) -> None:
        edited = json.loads(json.dumps(document))
        found = list(places(edited))
        for number, value in changes.items():
            node, key = found[number]
            node[key] = value
        text = json.dumps({**edited, "seal": BLANK}, indent=1).encode() + b"\n"
        seal = str(seal_of(text)).encode()
        (folder / run_id / RECORD_FILE).write_bytes(text.replace(BLANK.encode(), seal))
        for command in (["check", str(folder)], ["report", str(folder), "--format", "json"]):
            status = main(
                [*command, "-o", str(tmp_path / "out")] if "report" in command else command
            )
            said = capsys.readouterr().err
            assert "Traceback" not in said
            assert "--debug shows the traceback" not in said, said
            assert status in (0, 2, 3), said

    check()


@pytest.mark.slow
def test_a_mutated_trace_gives_a_report_with_a_note(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(3):
        chance = random.Random(seed)
        folder = tmp_path / "runs"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        for file in folder.glob("*/*.parquet"):
            content = bytearray(file.read_bytes())
            for _ in range(chance.randint(1, 30)):
                content[chance.randrange(len(content))] = chance.randrange(256)
            file.write_bytes(content[: chance.choice([None, len(content) // 2])])
        answers(main, folder, capsys)


def test_half_a_character_in_a_record_is_a_sentence(good: Path, tmp_path: Path) -> None:
    from wattload.reports.runs.load import load_runs

    shutil.copytree(good, tmp_path / "runs")
    file = tmp_path / "runs/run-0" / RECORD_FILE
    file.write_text(file.read_text().replace('"label": "A"', '"label": "\\ud800"'))
    with pytest.raises(RecordError, match="can't be read as a record"):
        load_runs([tmp_path / "runs"])
