"""`capturebook build`: kernels cross-compiled for targets that this machine need not have."""

from pathlib import Path

from .. import paths
from ..chain import plan
from ..chain.folder import RunFolder
from ..chain.runfiles import claim
from ..params import allowed, validate
from .common import COMPLETE, INCOMPLETE, InputError, emit, say, tell, where
from .probe import pairs
from .target import locate

COLUMNS = ("target", "kernel", "config", "pinned", "registers", "spills", "shared", "shared_limit", "occupancy", "fits")

BYTES = ("spills", "shared", "shared_limit")


def build(args) -> int:
    """Rows of the build check. Exit 3 when nothing could be listed or a compilation did not run to an end.

    A refused compilation is a row. Without a target the built-in kernels; else those that one call of the step
    launches, or launches before its host reads what one of them computed. Those rows are whole, so the exit is 0; where
    the call was stopped, stderr says, and the listing's record (payload.stopped, caveats).
    """
    from ..measure.build import BuildError, build_rows
    from ..measure.crosscompile import SPARSE_MLA
    from ..probes import ProbePool

    try:
        targets = _targets(args.targets) if args.targets else validate({}).targets
        given = {"preset": "build", "targets": targets, "all_configs": not args.pinned, "deadline": args.deadline}
        given |= {"preload": args.preload, **pairs(args)}
        if args.target:
            given["subject"] = locate(args.target, Path.cwd(), given["options"])
        elif args.option:
            raise InputError(f"--option: given {args.option[0]!r}; allowed: with a TARGET, whose build takes it")
        params = validate(given)
        hypothesis, question, _ = plan.ask(params)
        run = RunFolder.create(claim("build"), params, hypothesis, question)
        run.note(command="build")
    except (ValueError, FileNotFoundError) as exc:
        raise InputError(exc) from None
    try:
        with ProbePool(run, on_event=say) as pool:
            result = build_rows(
                pool.run,
                params.targets,
                params.all_configs,
                examples=params.subject if args.target else SPARSE_MLA,
                step=params.options if args.target else None,
                deadline=params.deadline,
                env=params.env,
                preload=tuple(params.preload),
            )
    except BuildError as exc:
        say(f"capturebook build: {exc}", f"logs: {where(run)}/logs")
        return INCOMPLETE
    finally:
        run.finish()
    if args.json:
        emit(result.rows)
    else:
        tell(*table(result.rows))
    say(*filter(None, [result.stopped]), *(f"not seen: {line}" for line in result.unseen))
    compiled = len(result.rows) - len(result.failed)
    counted = f"{compiled} compiled, {len(result.failed)} not; {result.left} configurations left out"
    tell(counted, f"records: {paths.from_here(run.records_path)}", as_json=args.json)
    return INCOMPLETE if any(row["status"] in ("not_run", "timeout") for row in result.rows) else COMPLETE


def _targets(text: str) -> list[int]:
    """The compute capabilities that --targets names; sm_90a is another target than sm_90, and not compiled for."""
    from ..measure.limits import parse_targets

    targets = parse_targets(text)
    words = [word.strip().removeprefix("sm_") for word in text.split(",")]
    if [word for word in words if word] != [str(target) for target in targets]:
        raise InputError(f"--targets: given {text!r}; allowed: {allowed('targets')}, each once")
    return targets


def table(rows: list[dict]) -> list[str]:
    """Rows as aligned text, one line each under a line of names; a refused compilation shows why."""
    cells = [[f"{name}_bytes" if name in BYTES else name for name in COLUMNS]]
    for row in rows:
        passed = row["status"] == "pass"
        cells.append([_word(row.get(name, "" if passed else "-")) for name in COLUMNS])
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
    reasons = [""] + ["" if row["status"] == "pass" else f"  {row['status']}: {row['reason']}" for row in rows]
    return [line + reason for line, reason in zip(lines, reasons)]


def _word(value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
