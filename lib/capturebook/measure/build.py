"""The build check as a whole: which compilations to run, and their rows. Imports neither torch nor triton."""

from collections.abc import Callable
from dataclasses import dataclass

from ..probes import Probe
from ..probes.scrub import relative
from ..records import Record, Subject
from . import build_cache
from .crosscompile import SPARSE_MLA
from .limits import parse_targets
from .rows import row_of, why


class BuildError(RuntimeError):
    """The kernels to compile could not be listed. One line says why; `status` is that of the listing's record."""

    def __init__(self, text: str, status: str = "fail"):
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class BuildResult:
    """`rows`: one dict a compilation, by kernel, configuration and target. `left`: how many were left out.

    `unseen`: kernels and operators that a call of a step did not show, a line each. `stopped`: where the call was not
    followed any further, since its host read a value that no launch had computed; the rows are of what it launched
    before. "" of a call that was followed to its end.
    """

    rows: list[dict]
    left: int
    unseen: list[str]
    stopped: str = ""

    @property
    def failed(self) -> list[dict]:
        return [row for row in self.rows if row["status"] != "pass"]


def build_rows(
    run: Callable[[list[Probe]], list[Record]],
    targets: str | list,
    all_configs: bool,
    examples: str = SPARSE_MLA,
    cache: str | None = None,
    deadline: float = 180.0,
    step: dict | None = None,
    env: dict[str, str] | None = None,
    preload: tuple[str, ...] = (),
) -> BuildResult:
    """Cross-compile every kernel of `examples` for `targets`, each compilation a probe, which `run` runs or has run.

    all_configs: every autotune configuration; else the pinned one and the first, the others counted in `left`.
    cache: a folder, "" for none, None for the user's cache folder. Rows are those of `rows.row_of`.
    step: `examples` names a step's build function, which is called with these keywords; its kernels are those that one
    call launches. env, preload: of each process.
    Raises BuildError, and ValueError for an unknown target.
    """
    chosen = parse_targets(targets)
    folder = str(build_cache.default_folder()) if cache is None else cache
    more = {} if step is None else {"step": step}
    process = {"deadline": deadline, "env": env or {}, "preload": preload}
    listing = run([_probe("plan", examples, {}, {"targets": chosen, **more}, "kernels to build", process)])[0]
    if listing.status != "pass":
        raise BuildError(
            f"build: the kernels of {relative(examples)!r} could not be listed: {why(listing)}", listing.status
        )
    entries = listing.payload["compilations"]
    wanted = [entry for entry in entries if all_configs or entry["pinned"] or entry["default"]]
    probes = [
        _probe(
            "run",
            examples,
            entry,
            {"cache": folder, **more},
            f"{entry['kernel']} {entry['config']} {entry['target']}",
            process,
        )
        for entry in wanted
    ]
    rows = [row_of(record) for record in run(probes)]
    return BuildResult(rows, len(entries) - len(wanted), listing.payload["unseen"], listing.payload["stopped"])


def _probe(job: str, examples: str, options: dict, args: dict, label: str, process: dict) -> Probe:
    return Probe(
        kind="build",
        subject=Subject(target=examples, options=options),
        job=f"capturebook.measure.crosscompile:{job}",
        args=args,
        label=label,
        **process,
    )
