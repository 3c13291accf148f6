"""``wattload check`` of published results: findings by set, totals by rule, and which sets fail."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from wattload.cli.escapes import printable
from wattload.core.errors import CHECK_FAILED, ConfigError, DataError
from wattload.core.mlperf.edition import editions, nearest_edition
from wattload.core.mlperf.notes import copies, notes
from wattload.core.mlperf.published import PublishedSet, Unread
from wattload.core.mlperf.rules import Finding, Standing, judge
from wattload.core.mlperf.store import holds_published, read_sets
from wattload.core.mlperf.tree import is_tree, read_tree, subject_of
from wattload.results.quantity import counted

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
    """A set, the edition it was held against, which edition it matches, and what was found."""

    published: PublishedSet
    edition: str
    reason: str
    findings: Sequence[Finding]

    def failed(self) -> str:
        """Return the rules that the set fails."""
        division = self.published.division
        return ", ".join(each.rule for each in self.findings if each.fails(division))

    def __str__(self) -> str:
        each = self.published
        subject = " ".join(filter(None, subject_of(each.facts)[1:]))
        return printable(f"{each.organisation}, {each.system}, {subject} ({each.path})")


def has_published(paths: Sequence[Path]) -> bool:
    """Return whether a folder holds published results, as downloaded or imported."""
    return any(path.is_dir() and (holds_published(path) or is_tree(path)) for path in paths)


def named_edition(name: str | None) -> str | None:
    """Return an edition's name, ``None`` for that which the parameters match.

    Raises:
        ConfigError: there is no such edition.
    """
    if name not in (None, AUTO, *editions()):
        known = ", ".join((AUTO, *editions()))
        raise ConfigError(f"unknown edition {name}; --edition takes {known}")
    return None if name == AUTO else name


def check_published(
    paths: Sequence[Path], edition: str | None, *, verbose: bool, as_json: bool
) -> int:
    """Print what holds of published sets; returns 3 if one fails a rule of its edition, else 0.

    Raises:
        DataError: there is no set.
    """
    stored = [path for path in paths if holds_published(path)]
    sets, unread = read_sets(stored)
    for tree in (read_tree(path) for path in paths if path not in stored):
        sets, unread = sets + tree.sets, unread + tree.unread
    if not sets:
        raise DataError(f"found no run of MLPerf Storage in {', '.join(map(str, paths))}")
    copied = copies(sets)
    checked = [_check(each, edition, copied.get(index)) for index, each in enumerate(sets)]
    if as_json:
        documents = [_document(each) for each in checked]
        print(json.dumps({"sets": documents, "unread": [each.model_dump() for each in unread]}))
    else:
        _show(checked, unread, verbose=verbose)
    return CHECK_FAILED if any(each.failed() for each in checked) else 0


def _check(published: PublishedSet, edition: str | None, copied: Finding | None) -> Checked:
    run, hint = published.runs[0], published.edition
    nearest, differences = nearest_edition(run.facts, run.settings, hint)
    reason = f"its parameters are those of {nearest}"
    if differences:
        reason = f"none: {', '.join(differences)}"
    held = edition or nearest
    findings = [*judge(published, editions()[held]), *notes(published, nearest)]
    return Checked(published, held, reason, [*findings, *([copied] if copied else [])])


def _document(checked: Checked) -> dict[str, object]:
    each = checked.published
    return {
        **each.model_dump(mode="json", include={"organisation", "system", "path", "division"}),
        "edition": checked.edition,
        "edition_reason": checked.reason,
        "tree_edition": each.edition,
        "findings": [
            {**found.model_dump(mode="json"), "fails": found.fails(each.division)}
            for found in checked.findings
        ],
    }


def _show(checked: Sequence[Checked], unread: Sequence[Unread], *, verbose: bool) -> None:
    from wattload.cli.console import Console

    console = Console(soft_wrap=True)
    for each in checked:
        kept = ("closed", "open") if each.published.division == "open" else ("closed",)
        shown = [found for found in each.findings if verbose or found.standing not in kept]
        if shown:
            console.print(Text(str(each), style="bold"))
        for found in shown:
            line = Text(f"  {_word(found.standing):<12}", STYLES[found.standing])
            text = printable(f"{found.rule} [{found.id}]: {found.sentence}")
            console.print(line.append(text, style="not bold default"))
    for left in unread:
        console.print(Text(printable(f"left out: {left.path}: {left.reason}"), style="cyan"))
    for line_ in _totals(checked):
        console.print(Text(printable(line_)))
    failed = [each for each in checked if each.failed()]
    for each in failed:
        console.print(Text(f"fails {each.failed()}: {each}", style="bold red"))
    runs = sum(len(each.published.runs) for each in checked)
    rest = f"{len(checked) - len(failed)} fail no rule, {len(failed)} fail one or more"
    console.print(f"{counted(len(checked), 'set')}, {counted(runs, 'run')}: {rest}")


def _totals(checked: Sequence[Checked]) -> Iterator[str]:
    """Yield which editions sets were held against, and a table of sets by rule and standing."""
    keys = ((each.edition, each.published.edition, each.reason) for each in checked)
    for (edition, tree, reason), count in Counter(keys).items():
        text = f"{counted(count, 'set')} by {edition} ({editions()[edition].text}): {reason}"
        yield f"{text}; the tree {f'is named {tree}' if tree else 'names no edition'}"
    found = ({(f"{f.rule} [{f.id}]", f.standing): 0 for f in each.findings} for each in checked)
    counts = Counter(key for each in found for key in each)
    words: list[Standing] = [word for word in STYLES if any(key[1] == word for key in counts)]
    width = max(len(rule) for rule, _ in counts)
    yield f"{'sets by rule':<{width}}" + "".join(f" {_word(word):>4}" for word in words)
    for rule in dict.fromkeys(rule for rule, _ in counts):
        cells = (f" {counts[rule, word] or '':>{max(4, len(word))}}" for word in words)
        yield f"{rule:<{width}}{''.join(cells)}"


def _word(standing: Standing) -> str:
    return "kept" if standing == "closed" else standing.replace("_", " ")
