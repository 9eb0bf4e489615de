"""Numbers that are no calls to compare: imports, installed sizes, the memory of a long loop's gradient."""

import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
from peers import PEERS
from registry import Figure, figures
from timing import Call, best_in_turns


def run_python(code: str) -> str:
    """What a new interpreter prints. It may keep compiled modules, as it does of installed packages."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def installed_peers() -> list[str]:
    modules = dict.fromkeys(peer.module for peer in PEERS.values())
    return [module for module in modules if importlib.util.find_spec(module)]


@figures("calls")
def import_time():
    """The smallest of several, each in a process of its own."""
    timed = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    seconds = best_in_turns(
        {name: lambda name=name: float(run_python(timed.format(name))) for name in installed_peers()}, 5
    )
    if run_python("import sys, quabla; print('numpy' in sys.modules)") != "False":
        raise AssertionError("import quabla imports NumPy")
    return [
        Figure(f"import {name}", taken * 1e3, "ms", bound=50 if name == "quabla" else None)
        for name, taken in seconds.items()
    ]


def with_requirements(distribution: str, found: dict | None = None) -> dict:
    """Bytes of an installed distribution and of all that it needs, by name."""
    from packaging.requirements import Requirement

    found = {} if found is None else found
    try:
        installed = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return found
    name = installed.name.lower()
    if name not in found:
        paths = {pathlib.Path(file.locate()) for file in installed.files or ()}
        found[name] = sum(path.stat().st_size for path in paths if path.is_file())
        for requirement in map(Requirement, installed.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                with_requirements(requirement.name, found)
    return found


@figures("calls")
def installed_size():
    """What each library takes on disk with all that it needs; Quabla as built here, with the BLAS it is linked to."""
    code = """
        import pathlib, quabla
        folder = pathlib.Path(quabla.__file__).parent
        files = {path.resolve() for path in folder.iterdir() if path.suffix in (".py", ".so", ".pyi")}
        with open("/proc/self/maps") as maps:
            files |= {pathlib.Path(line.split()[-1]) for line in maps if "openblas" in line or "gfortran" in line}
        print(sum(path.stat().st_size for path in files))
    """
    sizes = {"quabla": int(run_python(code))} if pathlib.Path("/proc/self/maps").exists() else {}
    sizes |= {name: sum(with_requirements(name).values()) for name in installed_peers() if name != "quabla"}
    return [Figure(f"installed size of {name}", size / 2**20, "MiB") for name, size in sizes.items()]


@figures("arrays")
def product_rate():
    """What the machine's products reach: the rate that rows bound by products are compared with."""
    figures = []
    for dtype in (np.float64, np.float32):
        x = np.random.default_rng(0).standard_normal((2048, 2048)).astype(dtype)
        call = Call("x @ x", x=x)
        seconds = best_in_turns({"": lambda: call.seconds(1)}, 9)[""]
        figures.append(Figure(f"numpy, 2048x2048 product, {x.dtype}", 2 * 2048**3 / seconds / 1e9, "GFLOP/s"))
    return figures


@figures("arrays")
def copy_bandwidth():
    """What a copy of 1e7 float64 values reaches, reads and writes counted, memory at hand."""
    x = np.random.default_rng(0).standard_normal(10**7)
    call = Call("np.copyto(y, x)", np=np, x=x, y=np.empty_like(x))
    seconds = best_in_turns({"": lambda: call.seconds(1)}, 15)[""]
    return [Figure("copy of 1e7 float64 values", 2 * x.nbytes / seconds / 1e9, "GB/s")]


@figures("loops")
def memory_of_the_gradient_of_a_loop():
    """The peak of a process that differentiates 100,000 steps over 1,000 values, above what it has before."""
    measured = """
        import quabla as qb
        def peak():  # of this process alone: getrusage gives a new process the peak of its parent
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
        def loss(x):
            return qb.sum(qb.scan(lambda c, i: (qb.sin(c), None), x, length=100_000, checkpoint={})[0])
        g, x = qb.jit(qb.grad(loss)), qb.ones(1000)
        predicted, before = g.lower(x).cost().peak_bytes, peak()
        g(x)
        print(predicted, peak() - before)
    """
    carries = 100_000 * 1_000 * 8
    found = []
    for name, checkpoint, bound in (("", None, None), (", checkpoint=True", True, 2.0)):
        predicted, taken = map(int, run_python(measured.format(checkpoint)).split())
        for word, bytes_ in (("the process", taken), ("cost()", predicted)):
            share = 100 * bytes_ / carries
            found.append(Figure(f"gradient of a long scan{name}: {word}", share, "% of all carries", bound))
    return found


@figures("pinn")
def step_beside_other_work():
    """A training step's median while other processes keep all processors busy, as a multiple of its median alone."""
    medians = """
        import statistics, subprocess, sys, time
        sys.path.insert(0, {!r})
        from peers import PEERS
        from registry import find
        peer = PEERS[{!r}]()
        peer.load()
        call = find("PINN 1-64x3-1, 1,024 points").make[peer.name](peer)()
        call.seconds(20)
        def median():
            return statistics.median(call.seconds(1) for _ in range(200))
        alone, busy = median(), [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range({})]
        try:
            time.sleep(0.5)
            print(alone, median())
        finally:
            for process in busy:
                process.kill()
    """
    found, folder = [], str(pathlib.Path(__file__).parents[1])
    for name in ("quabla", "jax"):
        if importlib.util.find_spec(name):
            alone, beside = map(float, run_python(medians.format(folder, name, os.cpu_count())).split())
            found.append(
                Figure(f"{name}: step beside as many busy processes as processors", beside / alone, "times", 2.2)
            )
    return found
