"""The results as tables, on the terminal and in docs/performance.md between its markers, and as a picture beside it."""

import importlib.metadata
import math
import os
import pathlib
import platform
import subprocess

from peers import PEERS
from registry import Figure, Row
from timing import Measured, Sample

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs"
DOCUMENT, PICTURE = FOLDER / "performance.md", FOLDER / "performance.svg"
BEGIN, END = "<!-- begin measured by benchmarks/run.py -->", "<!-- end measured -->"
Results = list[tuple[Row, dict[str, Measured], dict[str, str]]]


def number(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= size:
            return f"{number(seconds / size)} {unit}"
    return "0"


def with_spread(sample: Sample) -> str:
    """The median, and the quartiles around it."""
    return f"{duration(sample.median)} ({duration(sample.low)} to {duration(sample.high)})"


def mebibytes(size: int | None) -> str:
    return "" if size is None else f"{number(size / 2**20)} MiB"


def call_ratio(ours: Measured, peer: Measured) -> float:
    """How many times longer the peer's call takes, by the medians or the fastest rounds, whichever is worse for us.

    On a busy machine threads that wait for each other make medians that are hundreds of fastest rounds.
    """
    return min(peer.steady.median / ours.steady.median, peer.steady.best / ours.steady.best)


def resolution(ours: Measured) -> float:
    """What staging, the difference of two times, is lost in: their spread."""
    return max(ours.steady.high - ours.steady.low, 1e-9)


def staging_ratio(ours: Measured, peer: Measured) -> tuple[float, bool]:
    """How many times longer the peer's staging takes; and whether that is known, or a lower bound only."""
    return peer.staging / max(ours.staging, resolution(ours)), ours.staging >= resolution(ours)


def fastest(measured: dict[str, Measured]) -> str | None:
    peers = [peer for peer in measured if peer != "quabla"]
    return min(peers, key=lambda peer: call_ratio(measured["quabla"], measured[peer]), default=None)


def targets(row: Row, measured: dict[str, Measured]) -> str:
    ours, jax = measured["quabla"], measured.get("jax")
    wanted = []
    if row.call:
        over = row.over or fastest(measured)
        if over in measured:
            factor = f"{row.call:.2g}x {over}"
            wanted.append((f"call {factor}", call_ratio(ours, measured[over]) >= row.call))
    if row.seconds:
        wanted.append((f"call at most {duration(row.seconds)}", ours.steady.median <= row.seconds))
    if row.staging and jax:
        ratio, known = staging_ratio(ours, jax)
        wanted.append((f"staging {row.staging:g}x", ratio >= row.staging or not known))
    if jax and jax.peak is not None:
        # Half a mebibyte: the kernel counts pages in batches.
        wanted.append(("memory", ours.peak <= jax.peak + 2**19))
    missed = [text for text, reached in wanted if not reached]
    return "**" + "; ".join(missed) + "**" if missed else "all" if wanted else ""


def table(header: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *lines])


def ratios_table(results: Results) -> str:
    others = [peer for peer in PEERS if peer != "quabla" and any(peer in measured for _, measured, _ in results)]
    header = ["Row", "Quabla", *others, "staging: quabla", "jax", "peak memory: quabla", "jax", "not reached"]
    lines = []
    for row, measured, failed in results:
        ours, jax = measured["quabla"], measured.get("jax")
        best = fastest(measured)
        cells = []
        for peer in others:
            if peer in measured:
                text = number(call_ratio(ours, measured[peer]))
                cells.append(f"**{text}**" if peer == best else text)
            else:
                cells.append("failed" if peer in failed else "")
        staging = ""
        if jax and row.staging:
            ratio, known = staging_ratio(ours, jax)
            staging = f"{'' if known else '> '}{number(ratio)}"
        memory = [mebibytes(ours.peak), mebibytes(jax.peak) if jax else ""]
        limit = resolution(ours)
        stage = [duration(ours.staging) if ours.staging >= limit else f"< {duration(limit)}", staging]
        lines.append([row.name, duration(ours.steady.median), *cells, *stage, *memory, targets(row, measured)])
    return table(header, lines)


def details_table(results: Results) -> str:
    header = ["Row", "Peer", "First call", "Call", "fastest", "GFLOP/s", "Peak memory"]
    lines = []
    for row, measured, _ in results:
        flops = measured["quabla"].flops
        for peer, m in measured.items():
            rate = number(flops / m.steady.median / 1e9) if flops and peer == "quabla" else ""
            name = row.name if peer == "quabla" else ""
            times = [with_spread(m.first), with_spread(m.steady), duration(m.steady.best)]
            lines.append([name, peer, *times, rate, mebibytes(m.peak)])
    return table(header, lines)


def figures_table(figures: list[Figure]) -> str:
    lines = []
    for f in figures:
        wanted = "" if f.bound is None else f"at most {f.bound:g} {f.unit}"
        lines.append([f.name, f"{number(f.value)} {f.unit}", wanted if f.met else f"**{wanted}**"])
    return table(["Figure", "Value", "Wanted"], lines)


def failures(results: Results) -> str:
    lines = [f"- {row.name}, {peer}: {why}" for row, _, failed in results for peer, why in failed.items()]
    return "Left out, since the peer failed:\n\n" + "\n".join(lines) if lines else ""


def processor() -> str:
    try:
        lines = subprocess.run(["lscpu"], check=True, capture_output=True, text=True).stdout.splitlines()
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("Model name:")]
        flags = next((line for line in lines if line.startswith("Flags:")), "")
        widest = next((name for name in ("avx512f", "avx2") if name in flags), "")
        return f"{models[0]}{f' ({widest})' if widest else ''}"
    except (OSError, subprocess.CalledProcessError, IndexError):
        return platform.processor() or platform.machine()


def load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan


def circumstances(load_before: float, seconds: float) -> str:
    versions = []
    for distribution in dict.fromkeys(name for peer in PEERS.values() for name in peer.distributions):
        try:
            versions.append(f"{distribution} {importlib.metadata.version(distribution)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {distribution}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{processor()}, {cores} cores, load {load_before:.1f} at the start and {load():.1f} at the end of "
        f"{seconds / 60:.0f} minutes; {platform.system()}, Python {platform.python_version()}, {', '.join(versions)}."
    )


def line(row: Row, measured: dict[str, Measured], failed: dict[str, str]) -> str:
    """A row in a line, for whoever waits."""
    ours = measured["quabla"]
    parts = [f"{row.name}: {duration(ours.steady.median)}, first {duration(ours.first.median)}"]
    for peer, m in measured.items():
        if peer != "quabla":
            parts.append(f"{peer} {number(call_ratio(ours, m))}x, first {duration(m.first.median)}")
    return "; ".join(parts + [f"{peer} failed: {why}" for peer, why in failed.items()])


def everything(results: Results, figures: list[Figure], around: str) -> str:
    parts = []
    if results:
        parts += ["How many times longer a call takes than Quabla's:", ratios_table(results), failures(results)]
        parts += ["First calls and calls, with quartiles:", details_table(results)]
    parts += [figures_table(figures)] if figures else []
    return "\n\n".join(part for part in [*parts, around] if part)


def document(text: str) -> None:
    """Puts the text between the markers of the document."""
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


COLOURS = {
    "jax": "#1f77b4",
    "torch": "#d62728",
    "torch.compile": "#ff9896",
    "casadi": "#2ca02c",
    "numpy": "#7f7f7f",
}


def picture(results: Results) -> None:
    """The ratios of all calls, a line a row, on a logarithmic axis: right of 1, Quabla is faster."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    matplotlib.rcParams["svg.hashsalt"] = "performance"
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8.5, 0.21 * len(results) + 1.2), layout="constrained")
    for peer, colour in COLOURS.items():
        points = [(call_ratio(m["quabla"], m[peer]), i) for i, (_, m, _) in enumerate(results) if peer in m]
        if points:
            axis.scatter(*zip(*points), s=18, color=colour, label=peer, zorder=3)
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set(xscale="log", xlabel="time of a call, as a multiple of Quabla's", ylim=(len(results) - 0.5, -0.5))
    axis.set_yticks(range(len(results)), [row.name for row, _, _ in results], fontsize=7)
    axis.grid(axis="both", color="#dddddd", linewidth=0.5)
    axis.xaxis.set_major_formatter("{x:g}")
    figure.legend(loc="outside upper center", ncols=len(COLOURS), frameon=False, fontsize=8)
    figure.savefig(PICTURE, metadata={"Date": None})
