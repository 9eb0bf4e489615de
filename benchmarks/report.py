"""The results as tables: on the terminal, and in docs/performance.md between its markers."""

import importlib.metadata
import os
import pathlib
import platform
import subprocess

from rows import Calls, Figure
from timing import Measured, Sample

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- begin measured by benchmarks/run.py -->", "<!-- end measured -->"


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0"


def with_spread(sample: Sample) -> str:
    """The median, and the quartiles around it."""
    return f"{duration(sample.median)} ({duration(sample.low)} to {duration(sample.high)})"


def targets(row: Calls, measured: dict[str, Measured]) -> str:
    ours, peer = measured["quabla"], measured.get("jax")
    wanted = []
    if row.staging_factor and peer:
        reached = peer.staging / max(ours.staging, 1e-9) >= row.staging_factor
        wanted.append((f"staging {row.staging_factor:g}x", reached))
    if row.call_factor and peer:
        reached = peer.steady.median / ours.steady.median >= row.call_factor
        wanted.append((f"call {row.call_factor:g}x", reached))
    if row.call_seconds:
        wanted.append((f"call < {duration(row.call_seconds)}", ours.steady.median < row.call_seconds))
    return ", ".join(f"{text}: {'yes' if reached else 'NO'}" for text, reached in wanted)


def table(header: list[str], lines: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    rows = [header, ["-" * width for width in widths], *lines]
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows
    )


def calls_table(results: list[tuple[Calls, dict[str, Measured]]]) -> str:
    header = ["Case", "Peer", "First call", "Staging", "Its factor", "Call", "Factor", "Wanted"]
    lines = []
    for row, measured in results:
        ours = measured["quabla"]
        for peer, m in measured.items():
            is_ours = m is ours
            lines.append(
                [
                    row.name if is_ours else "",
                    peer,
                    with_spread(m.first),
                    duration(m.staging),
                    "" if is_ours or not row.staging_factor else f"{m.staging / max(ours.staging, 1e-9):.0f}x",
                    with_spread(m.steady),
                    "" if is_ours else f"{m.steady.median / ours.steady.median:.2f}x",
                    targets(row, measured) if is_ours else "",
                ]
            )
    return table(header, lines)


def figures_table(figures: list[Figure]) -> str:
    lines = [
        [
            f.name,
            f"{f.value:.3g} {f.unit}",
            "" if f.bound is None else f"< {f.bound:g} {f.unit}: {'yes' if f.met else 'NO'}",
        ]
        for f in figures
    ]
    return table(["Figure", "Value", "Wanted"], lines)


def processor() -> str:
    try:
        lines = subprocess.run(["lscpu"], check=True, capture_output=True, text=True).stdout.splitlines()
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("Model name:")]
        flags = next((line for line in lines if line.startswith("Flags:")), "")
        widest = next((name for name in ("avx512f", "avx2") if name in flags), "")
        return f"{models[0]}{f' ({widest})' if widest else ''}"
    except (OSError, subprocess.CalledProcessError, IndexError):
        return platform.processor() or platform.machine()


def circumstances() -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib", "numpy"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{processor()}, {cores} cores, load {load:.1f} at the end; {platform.system()}, "
        f"Python {platform.python_version()}, {versions}."
    )


def document(text: str) -> None:
    """Puts the text between the markers of the document."""
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
