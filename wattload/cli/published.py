"""Printing of ``wattload check`` for published sets: findings, totals by rule, and notes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from wattload.cli.escapes import printable
from wattload.core.errors import CHECK_FAILED, ConfigError, DataError
from wattload.core.mlperf.edition import edition_of, editions, nearest_edition
from wattload.core.mlperf.notes import copies, notes
from wattload.core.mlperf.published import PublishedSet, Unread
from wattload.core.mlperf.rules import Finding, Standing, judge
from wattload.core.mlperf.store import holds_published, read_sets
from wattload.core.mlperf.tree import is_tree, read_tree, subject_of

AUTO = "auto"
STYLES: Mapping[Standing, str] = {
    "invalid": "bold red",
    "open": "yellow",
    "warning": "yellow",
    "note": "cyan",
    "not_checked": "cyan",
    "closed": "green",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """A set, the edition it was held against and why, and what was found."""

    published: PublishedSet
    edition: str
    reason: str
    findings: Sequence[Finding]

    @property
    def title(self) -> str:
        each = self.published
        subject = " ".join(filter(None, subject_of(each.facts)[1:]))
        return f"{each.organisation}, {each.system}, {subject} ({each.path})"

    def fails(self, finding: Finding) -> bool:
        return finding.fails(self.published.division)

    def shows(self, finding: Finding) -> bool:
        """Whether a finding is more than a rule that is plainly kept in the set's division."""
        allowed = ("closed", "open") if self.published.division == "open" else ("closed",)
        return finding.standing not in allowed


def has_published(paths: Sequence[Path]) -> bool:
    """Return whether a folder holds published results, as downloaded or imported."""
    return any(path.is_dir() and (holds_published(path) or is_tree(path)) for path in paths)


def check_published(paths: Sequence[Path], edition: str, *, verbose: bool, as_json: bool) -> int:
    """Print what holds of published sets; returns 3 if one fails a rule of its edition, else 0.

    Raises:
        ConfigError: the edition is unknown.
        DataError: there is no set.
    """
    if edition not in (AUTO, *editions()):
        known = ", ".join((AUTO, *editions()))
        raise ConfigError(f"unknown edition {edition}; --edition takes {known}")
    sets, unread = _read(paths)
    if not sets:
        raise DataError(f"found no run of MLPerf Storage in {', '.join(map(str, paths))}")
    copied = copies(sets)
    checked = [
        _check(each, edition, [copied[index]] if index in copied else [])
        for index, each in enumerate(sets)
    ]
    if as_json:
        documents = [_document(each) for each in checked]
        print(json.dumps({"sets": documents, "unread": [each.model_dump() for each in unread]}))
    else:
        _show(checked, unread, verbose=verbose)
    failed = any(each.fails(finding) for each in checked for finding in each.findings)
    return CHECK_FAILED if failed else 0


def _read(paths: Sequence[Path]) -> tuple[list[PublishedSet], list[Unread]]:
    """Return the sets of folders of imported sets, and of trees as downloaded."""
    stored, bad = read_sets(path for path in paths if holds_published(path))
    sets, unread = list(stored), list(bad)
    for path in paths:
        if not holds_published(path):
            tree = read_tree(path)
            sets += tree.sets
            unread += tree.unread
    return sets, unread


def _check(published: PublishedSet, edition: str, copied: Sequence[Finding]) -> Checked:
    first, hint = published.runs[0], published.edition
    name, reason = edition_of(first.facts, first.settings, hint)
    nearest, _ = nearest_edition(first.facts, first.settings, hint)
    held = nearest if edition == AUTO else edition
    findings = [*judge(published, editions()[held]), *notes(published, name or nearest), *copied]
    return Checked(published, held, reason, findings)


def _document(checked: Checked) -> dict[str, Any]:
    each = checked.published
    return {
        "organisation": each.organisation,
        "system": each.system,
        "path": each.path,
        "division": each.division,
        "edition": checked.edition,
        "edition_reason": checked.reason,
        "tree_edition": each.edition,
        "findings": [
            {**finding.model_dump(mode="json"), "fails": checked.fails(finding)}
            for finding in checked.findings
        ],
    }


def _show(checked: Sequence[Checked], unread: Sequence[Unread], *, verbose: bool) -> None:
    from wattload.cli.console import Console

    console = Console(soft_wrap=True)
    for each in checked:
        shown = [f for f in each.findings if verbose or each.shows(f)]
        if shown:
            console.print(Text(printable(each.title), style="bold"))
        for finding in shown:
            line = Text(f"  {_word(finding.standing):<12}", STYLES[finding.standing])
            text = f"{finding.rule} [{finding.id}]: {finding.sentence}"
            console.print(line.append(printable(text), style="not bold default"))
    for left in unread:
        console.print(Text(printable(f"left out: {left.path}: {left.reason}"), style="cyan"))
    for text in _totals(checked):
        console.print(Text(printable(text)))
    failed = [each for each in checked if any(map(each.fails, each.findings))]
    for each in failed:
        rules = ", ".join(finding.rule for finding in each.findings if each.fails(finding))
        console.print(Text(printable(f"fails {rules}: {each.title}"), style="bold red"))
    kept = len(checked) - len(failed)
    runs = sum(len(each.published.runs) for each in checked)
    console.print(f"{len(checked)} sets, {runs} runs: {kept} fail no rule, {len(failed)} fail one")


def _totals(checked: Sequence[Checked]) -> Iterator[str]:
    """Yield which editions sets were held against, and a table of sets by rule and standing."""
    for (edition, tree, reason), count in Counter(
        (each.edition, each.published.edition, each.reason) for each in checked
    ).items():
        yield f"{edition}: {count} sets; {reason}; their tree is called {tree or 'nothing known'}"
    counts = Counter((f"{f.rule} [{f.id}]", f.standing) for each in checked for f in each.findings)
    words: list[Standing] = [word for word in STYLES if any(key[1] == word for key in counts)]
    yield f"{'sets by rule':<50}" + "".join(f"{_word(word):>12}" for word in words)
    for rule in dict.fromkeys(rule for rule, _ in counts):
        yield f"{rule:<50}" + "".join(f"{counts[rule, word] or '':>12}" for word in words)


def _word(standing: Standing) -> str:
    return "kept" if standing == "closed" else standing.replace("_", " ")
