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


# Under a filter of system calls by which mprotect refuses to make memory executable, or does as ever.
FILTERED = """
import ctypes
import struct
import sys

import numpy as np
import quabla as qb

MPROTECT, PROT_EXEC, ALLOW = 10, 4, 0x7FFF0000
ANSWER = {"refuse": 0x00050000 | 13, "allow": ALLOW}[sys.argv[1]]
NUMBER, THIRD_ARGUMENT = 0, 32
LOAD, EQUAL, SET, RETURN = 0x20, 0x15, 0x45, 0x06
rules = [
    (LOAD, 0, 0, NUMBER),
    (EQUAL, 0, 3, MPROTECT),
    (LOAD, 0, 0, THIRD_ARGUMENT),
    (SET, 0, 1, PROT_EXEC),
    (RETURN, 0, 0, ANSWER),
    (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HP", len(rules), ctypes.addressof(code)))
prctl = ctypes.CDLL(None).prctl
if prctl(38, 1, 0, 0, 0) != 0 or prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0) != 0:
    sys.exit("no filters")

x = qb.asarray(np.linspace(-1, 1, 13))
step = qb.jit(lambda x: qb.where(x > 0, x * x, x) + qb.sum(x))
for _ in range(3):
    x = step(x)
with open("/proc/self/maps") as maps:
    print(sum("x" in line.split()[1] and len(line.split()) < 6 for line in maps), np.asarray(x).tobytes().hex())
"""


def under_filter(answer):
    """How many maps of executable memory there are that belong to no file, and the results' bits."""
    done = subprocess.run([sys.executable, "-c", FILTERED, answer], capture_output=True, text=True)
    if done.stderr.strip() == "no filters":
        pytest.skip("the system has no filters of system calls")
    assert done.returncode == 0, done.stderr
    count, bits = done.stdout.split()
    return int(count), bits


@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64" or "LD_PRELOAD" in os.environ,
    reason="knows the calls of Linux on x86-64; sanitizers make code, too",
)
def test_where_no_memory_may_be_executable_programs_are_interpreted():
    count, bits = under_filter("refuse")
    assert count == 0
    assert under_filter("allow")[1] == bits
