"""Machine code of kernels against the interpreter: the same bits, whatever the lanes and their values are."""

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAMS = pathlib.Path(__file__).with_name("machine_code_programs.py")


def start(first, limit, **environment):
    """A process that prints a line for each seed."""
    command = [sys.executable, PROGRAMS, str(first), str(limit)]
    environment = dict(os.environ, **environment)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines(process):
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output.splitlines()


@pytest.mark.parametrize("first", [0, 1000, 2000])
def test_random_programs_have_the_same_bits_with_and_without(first):
    limit = first + 150
    runs = [start(first, limit, QUABLA_MACHINE_CODE="0")]
    runs += [start(first, limit, QUABLA_ISA=isa) for isa in ("avx512", "avx2")]
    interpreted, *others = [lines(process) for process in runs]
    assert len(interpreted) == limit - first
    for other in others:
        for a, b in zip(interpreted, other, strict=True):
            assert a == b
