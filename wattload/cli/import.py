"""``wattload import``: read published results of MLPerf Storage, and store them set by set."""  # noqa: N999

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from wattload.core.errors import ConfigError, DataError
from wattload.core.mlperf.published import SOURCES, PublishedSet
from wattload.core.mlperf.store import write_sets
from wattload.core.mlperf.tree import Tree, read_tree, subject_of
from wattload.results.quantity import counted

_DEFAULT = "runs/published"
_RUNS = "runs="


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="+",
        metavar="TREE",
        help="a folder of published results, such as mlcommons/storage_results_v1.0 as downloaded; "
        f"runs=DIR is where they are stored, {_DEFAULT} by default",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Import all trees; returns 0, or 2 if no run was found."""
    words: list[str] = arguments.words
    trees = [Path(word) for word in words if not word.startswith(_RUNS)]
    if not trees:
        raise ConfigError("no tree named; for example: wattload import results_v1.0/ runs=DIR")
    runs = Path(next((w.removeprefix(_RUNS) for w in words if w.startswith(_RUNS)), _DEFAULT))
    documents = []
    for path in trees:
        tree = read_tree(path)
        write_sets(tree.sets, runs)
        documents.append({"path": str(path), **_document(tree)})
        if not arguments.json and (tree.sets or tree.unread):
            _print(tree)
    if arguments.json:
        print(json.dumps({"runs": str(runs), "trees": documents}))
    if not any(document["sets"] for document in documents):
        nothing = f"found no run of MLPerf Storage in {', '.join(map(str, trees))}"
        raise DataError(f"{nothing}; name a folder of summary.json files (own runs need no import)")
    if not arguments.json:
        print(f"stored in {runs}; compare with runs of yours: wattload report {runs} RUN...")
    return 0


def _document(tree: Tree) -> dict[str, Any]:
    return {
        "sets": [
            {
                **each.model_dump(include={"path", "organisation", "system"}),
                "model": subject_of(each.facts)[1],
                "accelerator": subject_of(each.facts)[2] or None,
                "runs": len(each.runs),
                "from": _sources(each),
            }
            for each in tree.sets
        ],
        "unread": [each.model_dump() for each in tree.unread],
        "not_in_this_copy": tree.absent,
        "passed_over": tree.passed_over,
        "litter": tree.litter,
    }


def _sources(*sets: PublishedSet) -> dict[str, int]:
    """Return how many runs' figures follow from which data."""
    found = Counter(getattr(run.facts, "source", "summary") for each in sets for run in each.runs)
    return {name: found[name] for name in SOURCES}


def _print(tree: Tree) -> None:
    for each in tree.sets:
        kind, model, accelerator = subject_of(each.facts)
        sources = ", ".join(f"{n} from {SOURCES[name]}" for name, n in _sources(each).items() if n)
        words = [kind.replace("_", " "), model, accelerator]
        if each.facts.kind == "training":
            words = [model, "on", str(each.facts.accelerators), accelerator]
        subject, runs = " ".join(filter(None, words)), counted(len(each.runs), "run")
        whose = (
            f"{each.organisation}, {each.system}" if each.division else f"{each.tree}/{each.path}"
        )
        print(f"{whose}: {subject}, {runs}, {sources}")
    for left in tree.unread:
        print(f"left out: {left.path}: {left.reason}")
    counts = ", ".join(f"{n} from {SOURCES[name]}" for name, n in _sources(*tree.sets).items())
    sets = counted(len(tree.sets), "set")
    runs = counted(sum(len(each.runs) for each in tree.sets), "run")
    absent, litter = counted(len(tree.absent), "file"), counted(tree.litter, "file")
    left_out = counted(len(tree.unread), "file")
    print(f"{sets}, {runs}: {counts}; {absent} not in this copy; {left_out} left out")
    passed_over = counted(tree.passed_over, "run")
    print(f"passed over: {passed_over} in folders of code or data sets, {litter} of macOS")
