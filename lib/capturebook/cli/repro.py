"""`capturebook repro`: a recorded failure as a standalone script, run to prove it before anything is claimed."""

from pathlib import Path

from .. import paths
from .common import COMPLETE, INCOMPLETE, InputError, can_be_file, emit, opened, tell
from .target import locate

SHOWN = 12
"""Ids of failed probes that an error names."""


def add_commands(add) -> None:
    """Register it; `add(name, function, help)` makes a subcommand's parser."""
    p = add("repro", repro, "write a recorded failure as a standalone script, and run it to prove it")
    p.add_argument("run", metavar="RUN", help="run folder")
    p.add_argument("probe", metavar="PROBE", help="probe id as records and report show it, or its beginning")
    p.add_argument("-o", "--output", default="repro.py", metavar="FILE", help="the script to write (default repro.py)")
    p.add_argument("--deadline", type=float, default=120.0, metavar="S", help="seconds the script may take")
    p.add_argument("--json", action="store_true", help="what was written and what it showed, on stdout")


def repro(args) -> int:
    """Exit 0 when the script showed the recorded root; 3 when it did not, or could not be run on this machine."""
    from ..probes.lease import gpu_uuid
    from ..repro import ReproError, needs_gpu, prove, write

    can_be_file("--output", args.output)
    run = opened(args.run)
    record = _record(run.records()[0], args.probe)
    path = Path(args.output)
    if path.suffix != ".py" or path.exists():
        what = "exists already" if path.exists() else "is no .py file"
        raise InputError(f"--output: {args.output!r} {what}; allowed: a new .py file")
    if not path.parent.is_dir():
        raise InputError(f"--output: no folder {str(path.parent)!r}; allowed: a new .py file in a folder that exists")
    try:
        if record.subject is not None:
            locate(record.subject.target, Path.cwd())
        written = write(record, run.info, path)
    except (ReproError, OSError, SyntaxError) as exc:
        raise InputError(exc) from None
    tell(f"wrote {', '.join(str(file) for file in written[:1])}{_beside(written)}", as_json=args.json)
    if needs_gpu(record, run.info) and gpu_uuid() is None:
        holds, says, shown = False, "not run: it needs a CUDA GPU, and this machine has none", None
    else:
        proof = prove(path, record, args.deadline)
        holds, says, shown = proof.holds, proof.says, proof.shown
    if args.json:
        files = [paths.shown(file.resolve()) for file in written]
        emit({"probe": record.probe, "files": files, "proven": holds, "says": says, "shown": shown})
    tell(f"proven: {says}" if holds else f"not proven: {says}", as_json=args.json)
    return COMPLETE if holds else INCOMPLETE


def _beside(written: list[Path]) -> str:
    return f", and {len(written) - 1} of the subject's files beside it" if len(written) > 1 else ""


def _record(records: list, probe: str):
    """The last record of the probe that an id, or its beginning, names. Raises InputError."""
    found = {r.probe: r for r in records if r.probe.startswith(probe)} if probe else {}
    if len(found) != 1:
        failed = list(dict.fromkeys(r.probe for r in records if r.kind == "step" and r.status in ("fail", "wrong")))
        what = f"is the beginning of {len(found)} probes" if found else "is no probe of this run"
        more = f" and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
        raise InputError(f"probe: {probe!r} {what}; those that failed: {', '.join(failed[:SHOWN]) or 'none'}{more}")
    return next(iter(found.values()))
