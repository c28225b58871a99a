"""The build check as a whole: which compilations to run, and their rows. Imports neither torch nor triton."""

from dataclasses import dataclass

from ..probes import Probe
from ..records import Record
from . import build_cache
from .crosscompile import SPARSE_MLA
from .limits import parse_targets


class BuildError(RuntimeError):
    """The kernels to compile could not be listed. One line says why."""


@dataclass(frozen=True)
class BuildResult:
    """`rows`: one dict a compilation, by kernel, configuration and target. `left`: how many were left out."""

    rows: list[dict]
    left: int

    @property
    def failed(self) -> list[dict]:
        return [row for row in self.rows if row["status"] != "pass"]


def build_rows(
    pool,
    targets: str | list,
    all_configs: bool,
    examples: str = SPARSE_MLA,
    cache: str | None = None,
    deadline: float = 180.0,
) -> BuildResult:
    """Cross-compile every kernel of `examples` for `targets`, each compilation in a process of the pool.

    all_configs: every autotune configuration; else the pinned one and the default (the first), the others counted in
    `left`. cache: a folder, "" for none, None for the user's cache folder. A row holds status and reason; with status
    "pass" the figures of `crosscompile.compile_row` too. Raises BuildError, and ValueError for an unknown target.
    """
    chosen = parse_targets(targets)
    folder = str(build_cache.default_folder()) if cache is None else cache
    listing = pool.run(
        [
            Probe(
                kind="build",
                job="capturebook.measure.crosscompile:plan",
                args={"examples": examples},
                label="kernels to build",
                deadline=deadline,
            )
        ]
    )[0]
    if listing.status != "pass":
        raise BuildError(f"build: the kernels of {examples!r} could not be listed: {reason(listing)}")
    probes, entries, total = [], [], 0
    for kernel in listing.payload["kernels"]:
        for entry in kernel["configs"]:
            total += len(chosen)
            if not (all_configs or entry["pinned"] or entry["index"] == 0):
                continue
            for sm in chosen:
                args = {"examples": examples, "kernel": kernel["kernel"], "index": entry["index"], "target": sm}
                probes.append(
                    Probe(
                        kind="build",
                        job="capturebook.measure.crosscompile:run",
                        args={**args, "cache": folder},
                        label=f"{kernel['kernel']} {entry['config']} sm_{sm}",
                        deadline=deadline,
                    )
                )
                entries.append(
                    {
                        "target": f"sm_{sm}",
                        "kernel": kernel["kernel"],
                        "config": entry["config"],
                        "pinned": entry["pinned"],
                    }
                )
    records = pool.run(probes)
    rows = [row_of(record, entry) for record, entry in zip(records, entries)]
    return BuildResult(rows, total - len(rows))


def row_of(record: Record, entry: dict) -> dict:
    """The row of one compilation: what was asked, how it ended, and the figures if it compiled."""
    figures = record.payload if record.status == "pass" else {}
    return {**entry, "status": record.status, "reason": reason(record), **figures}


def reason(record: Record) -> str:
    """Why a record did not pass, in one line: the parent's reason, else the first line of the root exception."""
    if record.reason or not record.root:
        return record.reason
    text = record.root.text.strip().splitlines()
    return f"{record.root.type}: {text[0]}" if text else record.root.type
