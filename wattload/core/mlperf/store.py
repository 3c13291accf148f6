"""Published sets as ``wattload import`` stores them: one ``published.json`` in a folder each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from wattload.core.base_models import first_fault
from wattload.core.errors import DataError
from wattload.core.files import choose_folder, read_bounded, temporary_for
from wattload.core.mlperf.files import LIMIT_BYTES
from wattload.core.mlperf.published import SET_FILE, PublishedSet, Unread
from wattload.core.mlperf.tree import subject_of

_LONGEST_NAME = 80


def write_sets(sets: Iterable[PublishedSet], runs: Path) -> None:
    """Write each set to its own folder in ``runs``, whole or not at all.

    The same set of the same tree gets the same folder, and replaces what is there.

    Raises:
        OSError: the kernel refuses.
        ForeignFileError: a folder belongs to somebody else, or others may write to it.
    """
    runs.mkdir(parents=True, exist_ok=True)
    with choose_folder(runs) as folder:
        for each in sets:
            with folder.make(_name(each)) as own:
                own.remove(*(name for name in own.names() if temporary_for(name)))
                own.write(SET_FILE, each.model_dump_json())


def read_sets(paths: Iterable[Path]) -> tuple[tuple[PublishedSet, ...], tuple[Unread, ...]]:
    """Return the stored sets in and below folders, and what can't be read with its reason."""
    sets: list[PublishedSet] = []
    unread: list[Unread] = []
    for file in (file for path in paths for file in sorted(path.rglob(SET_FILE))):
        try:
            sets.append(PublishedSet.model_validate_json(read_bounded(file, LIMIT_BYTES)))
        except ValidationError as error:
            place, fault, _ = first_fault(error)
            unread.append(Unread(path=str(file), reason=f"{place}: {fault}"))
        except (DataError, OSError) as error:
            unread.append(Unread(path=str(file), reason=str(error)))
    return tuple(sets), tuple(unread)


def holds_published(path: Path) -> bool:
    """Return whether a stored set is in or below a folder."""
    return next(path.rglob(SET_FILE), None) is not None


def _name(each: PublishedSet) -> str:
    """Return the name of a set's folder: readable, and its own by the digest of its key."""
    subject = subject_of(each.facts)
    text = "-".join((each.organisation, each.system, *subject[1:]))
    key = [each.tree, each.path, *subject]
    if each.division is None:  # the output of one's own DLIO often has the same names
        key.extend(each.runs[0].sources.values())
    digest = hashlib.sha256("\n".join(key).encode()).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', text)[:_LONGEST_NAME].strip('-.')}-{digest[:8]}"
