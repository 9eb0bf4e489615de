"""One process for each peer, and how they take turns.

A server imports its peer once and forks a worker for each row: every row starts from the same state, has its own peak
of memory, and pays no import. The workers of a row run one at a time, a block of calls each, for many rounds, so that
other work on the machine disturbs all alike. After each block the next peer waits until all threads of the one before
sleep, for a third of a second at most: some go on looking for work for a tenth of one.
"""

import contextlib
import ctypes
import gc
import glob
import importlib.util
import multiprocessing
import os
import signal
import time
import traceback
from dataclasses import dataclass

from peers import PEERS
from registry import Row, find
from timing import Measured, Sample, digest, same

PAUSE = 0.003
MOST_PAUSES = 100
ANSWER_SECONDS = 240.0


class PeerError(RuntimeError):
    """A peer raised an error, died, or took too long."""


# --- in the worker ---


def status_bytes(field: str) -> int | None:
    """A field of /proc/self/status, where there is one."""
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return None


def reset_peak() -> int | None:
    """Forgets the peak of memory so far; returns what is resident now."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
        return status_bytes("VmRSS")
    return None


class Worker:
    """Answers the requests of one row for one peer."""

    def __init__(self, peer, row: Row):
        self.peer = peer
        peer.load()
        self.fresh = row.make[peer.name](peer)
        self.call = None

    def check(self, calls: int):
        """The values of some calls, the seconds of the first, and the peak of memory above what the inputs take."""
        before, peaks, digests, seconds = reset_peak(), [], [], []
        self.call = self.fresh()
        for _ in range(calls):
            start = time.perf_counter()
            value = self.call.value()
            seconds.append(time.perf_counter() - start)
            peaks.append(status_bytes("VmHWM"))
            digests.append(digest(value))
            del value
            reset_peak()
        return digests, seconds[0], None if before is None else max(max(peaks) - before, 0)

    def first(self):
        """The seconds of a first call of functions made anew.

        Those made before are called just ahead of it, so that inputs are as warm as for a later call, and the
        difference is what a new function costs.
        """
        fresh = self.fresh()
        gc.collect()
        self.call.warm_up()
        seconds = fresh.first()
        self.call = fresh
        return seconds

    def flops(self):
        """Floating-point operations of a call, where it is one of a function that can say."""
        names = self.call.names
        arguments = [names[name] for name in names if name.startswith("a") and name[1:].isdigit()]
        lower = getattr(names.get("f"), "lower", None)
        return lower(*arguments).cost().flops if lower and self.peer.name == "quabla" else None

    def block_length(self):
        return self.call.block_length()

    def block(self, count):
        return self.call.block(count)


def work(connection, peer_name: str, row_name: str) -> None:
    worker = None
    while True:
        request, *arguments = connection.recv()
        if request == "end":
            if worker:
                worker.peer.unload()
            return
        try:
            worker = worker or Worker(PEERS[peer_name](), find(row_name))
            connection.send(("value", getattr(worker, request)(*arguments)))
        except Exception as error:
            traceback.print_exc()
            connection.send(("error", f"{type(error).__name__}: {error}".splitlines()[0]))


def serve(connection, peer_name: str) -> None:
    """The server of a peer: imports it, and forks."""
    importlib.import_module(PEERS[peer_name].module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection.send(("ready", os.getpid()))
    while True:
        try:
            row_name = connection.recv()
        except EOFError:
            return
        pid = os.fork()
        if pid == 0:
            try:
                work(connection, peer_name, row_name)
            finally:
                os._exit(0)
        connection.send(("started", pid))
        _, status = os.waitpid(pid, 0)
        connection.send(("ended", os.waitstatus_to_exitcode(status)))


# --- in the process that runs the suite ---


def is_running(pid: int) -> bool:
    """Whether a thread of the process runs, or could."""
    for stat in glob.glob(f"/proc/{pid}/task/*/stat"):
        with contextlib.suppress(OSError), open(stat) as file:
            if file.read().rpartition(")")[2].split()[0] == "R":
                return True
    return False


class Server:
    """The other end of serve()."""

    def __init__(self, peer_name: str):
        self.peer_name = peer_name
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, peer_name), daemon=True)
        self.process.start()
        theirs.close()
        self.worker = None
        self.expect("ready")

    def expect(self, wanted: str):
        if not self.connection.poll(ANSWER_SECONDS):
            raise PeerError(f"no answer within {ANSWER_SECONDS:g} s")
        try:
            kind, value = self.connection.recv()
        except EOFError:
            raise PeerError("its process ended") from None
        if kind == "error":
            raise PeerError(value)
        if kind != wanted:
            raise PeerError(f"its process ended with status {value}" if kind == "ended" else f"answered {kind}")
        return value

    def start(self, row: Row) -> None:
        self.connection.send(row.name)
        self.worker = self.expect("started")

    def ask(self, request: str, *arguments):
        self.connection.send((request, *arguments))
        return self.expect("value")

    def rest(self) -> None:
        """Waits until no thread of the worker runs, twice in a row."""
        quiet = 0
        for _ in range(MOST_PAUSES):
            time.sleep(PAUSE)
            quiet = 0 if is_running(self.worker) else quiet + 1
            if quiet == 2:
                return

    def end(self) -> bool:
        """Ends the worker; False where the server is of no use any more."""
        try:
            self.connection.send(("end",))
            self.expect("ended")
        except (PeerError, OSError):
            self.stop()
            return False
        return True

    def stop(self) -> None:
        if self.worker:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.worker, signal.SIGKILL)
        self.process.terminate()
        self.process.join()


class Servers:
    """The servers of the peers that are installed, started when first needed and again after one has died."""

    def __init__(self):
        self.running: dict[str, Server] = {}

    def installed(self, peer_name: str) -> bool:
        return importlib.util.find_spec(PEERS[peer_name].module) is not None

    def __getitem__(self, peer_name: str) -> Server:
        if peer_name not in self.running:
            self.running[peer_name] = Server(peer_name)
        return self.running[peer_name]

    def release(self, peer_name: str) -> None:
        if not self.running[peer_name].end():
            del self.running[peer_name]

    def stop(self) -> None:
        for server in self.running.values():
            server.stop()


@dataclass
class Budget:
    """How much is measured: blocks of calls, first calls, and the seconds after which a slow peer gets no more."""

    rounds: int = 101
    fewest_rounds: int = 5
    first_rounds: int = 5
    steady_seconds: float = 1.5
    first_seconds: float = 1.5
    first_patience: float = 4.0


class Match:
    """One row's peers in turns. A peer that fails leaves, with the reason; Quabla's failure ends the row."""

    def __init__(self, row: Row, servers: Servers, chosen: list[str] | None):
        self.row, self.servers = row, servers
        self.peers = [
            peer
            for peer in row.make
            if servers.installed(peer) and (peer == "quabla" or chosen is None or peer in chosen)
        ]
        self.failed: dict[str, str] = {}

    def each(self, act) -> dict:
        """What act(server, peer) gives for each peer that is still there."""
        answers = {}
        for peer in self.peers:
            if peer in self.failed:
                continue
            try:
                answers[peer] = act(self.servers[peer], peer)
            except PeerError as error:
                if peer == "quabla":
                    raise
                self.failed[peer] = str(error)
        return answers

    def first_calls(self, budget: Budget, checked: dict[str, float]) -> dict[str, list[float]]:
        """Those of the check warmed up what first calls share, and count only where another would take too long."""
        samples = {peer: [seconds] if seconds > budget.first_patience else [] for peer, seconds in checked.items()}

        def first(server, peer):
            taken = samples[peer]
            if len(taken) < budget.first_rounds and sum(taken) < budget.first_seconds:
                taken.append(server.ask("first"))
                server.rest()

        for _ in range(budget.first_rounds):
            self.each(first)
        return samples

    def steady_calls(self, budget: Budget) -> dict[str, list[float]]:
        lengths = self.each(lambda server, peer: server.ask("block_length"))
        samples: dict[str, list[float]] = {peer: [] for peer in lengths}
        spent = dict.fromkeys(lengths, 0.0)

        def block(server, peer):
            if len(samples[peer]) >= budget.fewest_rounds and spent[peer] > budget.steady_seconds:
                return
            start = time.perf_counter()
            samples[peer].append(server.ask("block", lengths[peer]))
            spent[peer] += time.perf_counter() - start
            server.rest()

        for _ in range(budget.rounds):
            self.each(block)
        return samples

    def measure(self, budget: Budget) -> dict[str, Measured]:
        started = self.each(lambda server, peer: server.start(self.row))
        try:
            checked = self.each(lambda server, peer: server.ask("check", self.row.checked_calls))
            expected = checked["quabla"][0]
            for peer, (values, *_) in checked.items():
                if not all(same(a, b, self.row.tolerance) for a, b in zip(expected, values)):
                    raise AssertionError(f"{self.row.name}: quabla gives {expected}, {peer} gives {values}")
            first = self.first_calls(budget, {peer: seconds for peer, (_, seconds, _) in checked.items()})
            steady = self.steady_calls(budget)
            flops = self.each(lambda server, peer: server.ask("flops"))
            return {
                peer: Measured(Sample.of(first[peer]), Sample.of(steady[peer]), checked[peer][2], flops[peer])
                for peer in self.peers
                if peer not in self.failed
            }
        finally:
            for peer in started:
                self.servers.release(peer)
