"""`capturebook verdict`, `report`, `params` and `doctor`: they read, and start no probe."""

from .. import doctor as machine
from .. import params as parameters
from .. import paths, provenance
from ..chain import plan
from ..files import FULL
from .common import COMPLETE, InputError, can_be_file, emit, opened, say, tell


def verdict(args) -> int:
    """The verdict of a run folder, from run.json, hypothesis.json and records.jsonl alone; nothing is written."""
    from ..report.run_data import RunData

    run = opened(args.run)
    if (run.path / "gallery.json").is_file():
        raise InputError(f"run: {args.run} is of many steps, a verdict each: capturebook gallery --from {args.run}")
    try:
        found, torn, purpose = plan.verdict(run), run.records()[1], RunData.open(run.path).purpose
    except ValueError as exc:
        raise InputError(exc) from None
    if args.json:
        emit(found.to_json())
    else:
        tell(*found.lines())
    if purpose:
        tell(f"note: this run was for {purpose} alone; no question of capture was put to it", as_json=args.json)
    say(*(f"note: {line}" for line in torn))
    return COMPLETE


def report(args) -> int:
    """report.html and the notebooks' pages of a run folder; of a launch's or a comparison's the launches alone."""
    from ..report import html, launch_page, rendered

    can_be_file("run_dir", args.run)
    try:
        path = paths.given(args.run)
        if launch_page.holds_launches(path):
            tell(f"report: {paths.from_here(launch_page.build(path))}")
            return COMPLETE
        run = opened(args.run)
        run.tidy()
        rendered.render_notebooks(run.path)
        tell(f"report: {paths.from_here(html.build(run.path))}")
    except ValueError as exc:
        raise InputError(exc) from None
    except OSError as exc:
        if exc.errno in FULL:
            raise
        where = f"{paths.shown(exc.filename)}: {exc.strerror}" if exc.filename else exc
        raise InputError(where) from None
    return COMPLETE


def params(args) -> int:
    """Every parameter: name, type, default, unit, allowed, help."""
    if args.write:
        changed = parameters.write_cells(paths.repository() / "notebooks")
        tell(*(f"wrote the parameters cell of {paths.shown(path)}" for path in changed), as_json=args.json)
    if args.json:
        emit(parameters.describe())
    elif not args.write:
        for row in parameters.describe():
            unit = f" {row['unit']}" if row["unit"] else ""
            tell(f"{row['name']} = {row['default']!r}{unit}", f"    {row['help']}; allowed: {row['allowed']}")
    return COMPLETE


def doctor(args) -> int:
    """Which preset suits this machine, why, and what it cannot run."""
    facts = provenance.collect()
    if args.json:
        preset, why = machine.choose_preset(facts)
        found = {"preset": preset, "why": why, "cannot": machine.cannot(facts), "notes": machine.notes(facts)}
        emit({**found, "provenance": facts})
    else:
        tell(*machine.report(facts))
    return COMPLETE
