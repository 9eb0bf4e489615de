"""Worker threads: the same bits for any number of them and any instruction set, in forked children, and with many callers at once."""

import hashlib
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import quabla as qb

PROGRAMS = """
import hashlib
import sys

import numpy as np
import quabla as qb

random = np.random.default_rng(3)
digest = hashlib.sha256()


def show(*results):
    for leaf in qb.tree.leaves(results):
        digest.update(leaf.numpy().tobytes())


for dtype in ("float64", "float32"):
    def data(*shape):
        return qb.array(random.normal(size=shape).astype(dtype))

    x, row = data(1_000_003), data(300)
    show(qb.tanh(x) * x, qb.sum(x), qb.sum(qb.sin(x) * x), qb.max(x), qb.mean(x), qb.norm(x))
    for shape in ((7, 100_003), (100_003, 7), (3001, 300), (300, 3001), (20, 300, 170), (2, 400_001)):
        m = data(*shape)
        for axis in range(len(shape)):
            show(qb.sum(qb.exp(-m * m), axis=axis), qb.max(m, axis=axis), qb.sum(m, axis=axis) + 1, qb.norm(m, axis))
    i = qb.array(random.integers(-100_003, 100_003, 200_000), dtype=qb.int64)
    show(data(100_003)[i], data(100_003, 3)[i], data(3, 100_003)[:, i], data(300_000).at[i].add(1.0))
    show(qb.cumsum(x), qb.cumsum(data(3, 50_000), 1), qb.cumsum(data(3000, 300), 0), qb.cumprod(data(300, 90) + 1, 0))
    show(qb.grad(lambda x: qb.sum(qb.cumsum(x) ** 2))(x))
    show(qb.sort(x), qb.argsort(x), qb.argsort(qb.round(x * 3)), qb.sort(data(300, 500), 0), qb.argsort(data(300, 500)))
    show(qb.argsort(data(40_000, 3), 0))
    show(qb.transpose(data(1500, 1400)) + 1, data(1000, 300) + row)
    show(data(700, 90) @ data(90, 500), data(64, 3000) @ data(3000, 64), data(33, 5) @ data(5, 100_000))
    show(data(300, 40, 50) @ data(300, 50, 30), data(2000, 1500) @ data(1500), data(3, 210, 400) @ data(3, 400, 190))
    show(data(900, 700) @ data(700, 800), qb.transpose(data(700, 330)) @ data(700, 410), data(3000, 64) @ data(64, 3))
    summed = qb.jit(lambda a, b, c, d: c + a @ b + qb.transpose(d) @ b)
    show(summed(data(500, 300), data(300, 400), data(500, 400), data(300, 500)))

    def network(w, x):
        return qb.sum(qb.tanh(qb.tanh(x @ w[0] + w[1]) @ w[2]) ** 2)

    w = [data(50, 64), data(64), data(64, 33)]
    show(qb.jit(qb.value_and_grad(network))(w, data(2000, 50)))
    scanned = lambda x: qb.scan(lambda c, i: (qb.tanh(c) + 0.1 * qb.mean(c), None), x, length=3)[0]
    show(qb.jit(qb.grad(lambda x: qb.sum(scanned(x))))(data(300_000)))
    for n, count in ((300, 1), (40, 30), (4, 9000), (500, 2)):
        a = data(count, n, n)
        s = qb.matmul(a, qb.swapaxes(a, -1, -2)) + n * qb.eye(n, dtype=a.dtype)
        show(qb.linalg.cholesky(s), *qb.linalg.lu(a), qb.linalg.solve(a, data(n, 700)), qb.linalg.slogdet(a))
        show(qb.linalg.solve_triangular(s, data(count, n, 1)), qb.linalg.solve(a, data(n)), qb.linalg.inv(s))
    for shape in ((60, 40), (300, 9, 9)):
        a = data(*shape)
        show(qb.linalg.svd(a), qb.linalg.svd(a, compute_uv=False), qb.linalg.qr(a), qb.linalg.eigh(a @ qb.swapaxes(a, -1, -2)))
    show(qb.vmap(qb.linalg.solve, in_axes=(None, 0))(data(30, 30), data(5000, 30)))
print(digest.hexdigest())
"""


def run(program, threads, **variables):
    environment = {**os.environ, "QUABLA_NUM_THREADS": str(threads), **variables}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def digest(threads, **variables):
    return run(PROGRAMS, threads, **variables)


def test_the_same_bits_for_any_number_of_threads():
    one = digest(1)
    assert len(one) == 64
    assert [digest(threads) for threads in (2, 3, 8)] == [one] * 3
    # wider vectors compute the same (but for narrow products, which are OpenBLAS's), and so does the interpreter (the x86-64 baseline lacks fused multiply-add)
    assert [digest(2, QUABLA_ISA=isa) for isa in ("avx512", "avx2")] == [one] * 2
    assert digest(2, QUABLA_MACHINE_CODE="0") == one


LARGE = qb.array(np.linspace(-3.0, 3.0, 400_000))
program = qb.jit(qb.value_and_grad(lambda x: qb.sum(qb.tanh(x) * qb.cos(x))))


def bits(result):
    return hashlib.sha256(b"".join(leaf.numpy().tobytes() for leaf in qb.tree.leaves(result))).hexdigest()


FEW_ITERATIONS = """
import hashlib

import numpy as np
import quabla as qb

x = qb.array(np.linspace(-1.0, 1.0, 3 * 200 * 200).reshape(3, 200, 200))
loop = qb.jit(lambda x: qb.scan(lambda c, a: (c, qb.tanh(a @ a)), (), xs=x)[1])
print(hashlib.sha256(b"".join(loop(x).numpy().tobytes() for _ in range(300))).hexdigest())
"""


def test_a_loop_may_have_fewer_iterations_than_there_are_threads():
    one = run(FEW_ITERATIONS, 1)
    assert [run(FEW_ITERATIONS, threads) for threads in (2, 3, 32)] == [one] * 3


def test_the_same_bits_in_a_hundred_runs():
    expected = bits(program(LARGE))
    assert all(bits(program(LARGE)) == expected for _ in range(100))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_workers_of_its_own():
    expected = bits(program(LARGE))
    child = os.fork()
    if child == 0:
        os._exit(0 if all(bits(program(LARGE)) == expected for _ in range(20)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bits(program(LARGE)) == expected


def test_eight_callers_at_once():
    expected, wrong = bits(program(LARGE)), []

    def call():
        for _ in range(30):
            if bits(program(LARGE)) != expected:
                wrong.append(1)

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.skipif(not os.path.isdir("/proc/self/task") or os.cpu_count() == 1, reason="counts threads in /proc")
@pytest.mark.parametrize("wanted", [None, "3"])
def test_loading_starts_no_threads(wanted):
    """Those of OpenBLAS would keep a processor busy for a tenth of a second; and other copies of it are left alone."""
    program = 'import os, quabla; print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))'
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if wanted:
        environment["OPENBLAS_NUM_THREADS"] = wanted
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["1", str(wanted)]


def test_a_process_ends_while_another_thread_computes():
    """At its end there are no workers, nor is there an interpreter."""
    program = """
import threading, time
import quabla as qb
x = qb.array([[float(i * j % 97) for j in range(64)] for i in range(130)])
loop = qb.jit(lambda x: qb.fori_loop(0, 10**9, lambda i, c: qb.sort(c, axis=0)[::-1], x))
for _ in range(2):
    threading.Thread(target=loop, args=(x,), daemon=True).start()
time.sleep(0.1)
"""
    for _ in range(3):
        found = subprocess.run([sys.executable, "-c", program], env={**os.environ, "QUABLA_NUM_THREADS": "8"})
        assert found.returncode == 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or os.cpu_count() == 1, reason="needs two processors")
def test_masks_that_others_set_stay():
    """`taskset -a` on a process that has workers; and the caller's own mask."""
    program = """
import os
import quabla as qb
x = qb.ones(400_000)
f = qb.jit(lambda x: qb.sum(qb.sin(x)))
def masks():
    return [sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]
all = sorted(os.sched_getaffinity(0))
f(x)
assert sorted(os.sched_getaffinity(0)) == all
for one in all[:2] * 2:
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), [one])
    for _ in range(5):
        f(x)
    assert masks() == [[one]] * len(masks()) and len(masks()) > 1, masks()
"""
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "QUABLA_NUM_THREADS": "2"}, check=True)
