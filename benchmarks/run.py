"""Compares Quabla with its peers on this machine.

    python benchmarks/run.py                 all rows; the tables go to the terminal and into docs/performance.md
    python benchmarks/run.py readme matmul   only rows with one of the words in family or name; nothing is written

Every row checks first that all peers compute the same values. Peers that are not installed are left out.
"""

import argparse
import os
import sys
import time

# Some machines set these variables for old builds of OpenBLAS; they slow a current one down, and the peers' too.
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)

import report  # noqa: E402
from registry import REGISTRY, every_row  # noqa: E402
from workers import Budget, Match, PeerError, Servers  # noqa: E402


def compare_all(rows, peers, budget):
    """The results of the rows, and what broke: a row on which Quabla fails or disagrees is a fault, not a result."""
    results, broken, servers = [], [], Servers()
    try:
        for row in rows:
            start = time.perf_counter()
            match = Match(row, servers, peers)
            try:
                measured = match.measure(budget)
            except (PeerError, AssertionError) as error:
                broken.append(row.name)
                print(f"{row.name}: {error}", file=sys.stderr)
                continue
            results.append((row, measured, match.failed))
            print(report.line(row, measured, match.failed), f"[{time.perf_counter() - start:.0f} s]", flush=True)
    finally:
        servers.stop()
    return results, broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="run only rows with one of these words in their family or name")
    parser.add_argument("--peers", help="only these beside Quabla: jax,numpy")
    for name, default in vars(Budget()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    arguments = vars(parser.parse_args())
    words, peers = [word.lower() for word in arguments.pop("words")], arguments.pop("peers")

    def wanted(family, name):
        return not words or any(word in f"{family} {name}".lower() for word in words)

    start, load = time.perf_counter(), report.load()
    rows = [row for row in every_row() if wanted(row.family, row.name)]
    chosen = [(family, measure) for family, measure in REGISTRY.figures if wanted(family, measure.__name__)]
    if not rows and not chosen:
        print(f"no row has one of these words: {', '.join(words)}", file=sys.stderr)
        return 2
    results, broken = compare_all(rows, peers.split(",") if peers else None, Budget(**arguments))
    figures = [figure for _, measure in chosen for figure in measure()]
    text = report.everything(results, figures, report.circumstances(load, time.perf_counter() - start))
    print(f"\n{text}")
    if not words and not peers and not broken:
        report.document(text)
        report.picture(results)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
