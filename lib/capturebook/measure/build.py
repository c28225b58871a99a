"""The build check as a whole: which compilations to run, and their rows. Imports neither torch nor triton."""

from dataclasses import dataclass

from ..probes import Probe
from ..records import Subject
from . import build_cache
from .crosscompile import SPARSE_MLA
from .limits import parse_targets
from .rows import row_of, why


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

    all_configs: every autotune configuration; else the pinned one and the first, the others counted in `left`.
    cache: a folder, "" for none, None for the user's cache folder. Rows are those of `rows.row_of`.
    Raises BuildError, and ValueError for an unknown target.
    """
    chosen = parse_targets(targets)
    folder = str(build_cache.default_folder()) if cache is None else cache
    listing = pool.run([_probe("plan", examples, {}, {"targets": chosen}, "kernels to build", deadline)])[0]
    if listing.status != "pass":
        raise BuildError(f"build: the kernels of {examples!r} could not be listed: {why(listing)}")
    entries = listing.payload["compilations"]
    wanted = [entry for entry in entries if all_configs or entry["pinned"] or entry["default"]]
    probes = [
        _probe(
            "run",
            examples,
            entry,
            {"cache": folder},
            f"{entry['kernel']} {entry['config']} {entry['target']}",
            deadline,
        )
        for entry in wanted
    ]
    return BuildResult([row_of(record) for record in pool.run(probes)], len(entries) - len(wanted))


def _probe(job: str, examples: str, options: dict, args: dict, label: str, deadline: float) -> Probe:
    return Probe(
        kind="build",
        subject=Subject(target=examples, options=options),
        job=f"capturebook.measure.crosscompile:{job}",
        args=args,
        label=label,
        deadline=deadline,
    )
