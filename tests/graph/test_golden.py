"""Golden text: what small functions look like as traced, and after the passes.

Each file of golden/ is one case: a source that defines `fun` and `arguments`, the graph as traced, and the graph after
folding, simplification, merging and the removal of dead nodes. After a change of rules or passes that is meant,

    QUABLA_WRITE_GOLDEN=1 make test PYTEST_ARGS=tests/graph

writes the files anew; read the difference before committing it.
"""

import os
import pathlib

import pytest
import quabla as qb

FOLDER = pathlib.Path(__file__).parent / "golden"
SECTIONS = ("source", "traced", "optimized")


def read(path):
    """The head comment and the sections of a case."""
    head, *parts = path.read_text().split("--- ")
    sections = {}
    for part in parts:
        name, _, text = part.partition("\n")
        sections[name.strip()] = text
    return head, sections


def write(path, head, sections):
    path.write_text(head + "".join(f"--- {name}\n{sections[name]}" for name in SECTIONS))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_golden(path):
    head, sections = read(path)
    scope = {"qb": qb}
    exec(compile(sections["source"], str(path), "exec"), scope)
    lowered = qb.jit(scope["fun"]).lower(*scope["arguments"])
    traced, optimized = lowered.program.text(False), lowered.as_text()
    if os.environ.get("QUABLA_WRITE_GOLDEN"):
        write(path, head, {"source": sections["source"], "traced": traced, "optimized": optimized})
        return
    assert traced == sections["traced"]
    assert optimized == sections["optimized"]


def test_there_are_cases():
    assert len(list(FOLDER.glob("*.txt"))) >= 10


def test_text_is_canonical():
    """Equal graphs have equal texts, whatever was computed beside them."""

    def plain(x):
        return qb.sin(x) * 2.0

    def with_dead_code(x):
        qb.exp(x) + qb.cos(x)
        return qb.sin(x) * 2.0

    texts = [qb.jit(f).lower(qb.ones(3)).program.text(False) for f in (plain, with_dead_code)]
    assert texts[0].replace("arg0", "x") == texts[1].replace("arg0", "x")
