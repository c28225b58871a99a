"""`capturebook build`: kernels cross-compiled for targets that this machine need not have."""

from .. import paths
from ..chain import plan
from ..chain.folder import RunFolder, fresh
from ..params import validate
from .common import COMPLETE, INCOMPLETE, InputError, emit, say, where

COLUMNS = ("target", "kernel", "config", "pinned", "registers", "spills", "shared", "shared_limit", "occupancy", "fits")


def build(args) -> int:
    """Rows of the build check. Exit 3 when a compilation did not run to an end; a refused one is a row."""
    from ..measure.build import BuildError, build_rows
    from ..measure.limits import parse_targets
    from ..probes import ProbePool

    try:
        targets = parse_targets(args.targets) if args.targets else validate({}).targets
        params = validate({"preset": "build", "targets": targets, "all_configs": args.all, "deadline": args.deadline})
        hypothesis, question, _ = plan.ask(params)
        run = RunFolder.create(fresh("build"), params, hypothesis, question)
    except (ValueError, FileNotFoundError) as exc:
        raise InputError(exc) from None
    try:
        with ProbePool(run, on_event=say) as pool:
            result = build_rows(pool, params.targets, params.all_configs, deadline=params.deadline)
    except BuildError as exc:
        say(f"capturebook build: {exc}", f"logs: {where(run)}/logs")
        return INCOMPLETE
    finally:
        run.finish()
    if args.json:
        emit(result.rows)
    else:
        say(*table(result.rows))
    say(f"{len(result.rows)} compiled, {len(result.failed)} of them refused; {result.left} configurations left out")
    say(f"records: {paths.shown(run.records_path)}")
    return INCOMPLETE if any(row["status"] in ("not_run", "timeout") for row in result.rows) else COMPLETE


def table(rows: list[dict]) -> list[str]:
    """Rows as aligned text, one line each under a line of names; a refused compilation shows why."""
    cells = [list(COLUMNS)]
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
