"""Compares Quabla with its peers on this machine.

    python benchmarks/run.py                 all rows; the tables go to the terminal and into docs/performance.md
    python benchmarks/run.py readme mlp      only rows whose name has one of the words; nothing is written

Every row checks first that all peers compute the same values.
"""

import argparse

import report
from rows import ROWS
from timing import compare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="run only rows with one of these words in their names")
    parser.add_argument("--rounds", type=int, default=401, help="blocks of calls for each peer")
    parser.add_argument("--first-rounds", type=int, default=7, help="first calls for each peer")
    arguments = parser.parse_args()

    def wanted(name):
        return not arguments.words or any(word.lower() in name.lower() for word in arguments.words)

    results = []
    for row in filter(lambda row: wanted(row.name), ROWS.calls):
        print(f"{row.name} ...", flush=True)
        measured = compare(row.name, row.make(), arguments.first_rounds, arguments.rounds, row.tolerance)
        results.append((row, measured))
    figures = [figure for measure in ROWS.figures if wanted(measure.__name__) for figure in measure()]
    parts = [report.calls_table(results)] if results else []
    parts += [report.figures_table(figures)] if figures else []
    text = "\n\n".join([*parts, report.circumstances()])
    print(f"\n{text}")
    if not arguments.words:
        report.document(text)


if __name__ == "__main__":
    main()
