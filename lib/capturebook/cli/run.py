"""`capturebook run`: the notebooks in order, then verdict and report."""

import contextlib
import re
import shutil
from pathlib import Path

from .. import doctor, paths, provenance
from ..chain import plan
from ..chain.folder import RunFolder
from ..chain.runfiles import claim, holds_run
from ..chain.runner import Chain
from ..launch.servers import comparison
from ..params import apply_sets, load_preset, validate
from ..probes import caches, servers
from . import launching
from .common import COMPLETE, INCOMPLETE, UNEXPECTED, InputError, Progress, can_be_file, incomplete, say, tell, where
from .target import locate

WITHOUT_PROBES = ("00", "05")
"""Notebooks that run no probe: for these alone no probe server is started."""


def run(args) -> int:
    """From parameters to exit status. Raises InputError before anything is started."""
    if args.preset:
        can_be_file("preset", args.preset)
    if args.preset and (status := _comparison(args)) is not None:
        return status
    if args.host is not None:
        return launching.run_there(args)
    if args.python is not None:
        raise InputError(f"--python: given {args.python!r} without --host; here it is this interpreter")
    facts = provenance.collect()
    try:
        params, why = _parameters(args, facts)
        notebooks = choose(args.only)
        held = _hold(args, params, facts)
    except (ValueError, FileNotFoundError) as exc:
        raise InputError(exc) from None
    say(why, *(f"cannot run here: {line}" for line in doctor.cannot(facts)), f"run folder: {where(held)}{_which(held)}")
    chain = Chain(held, {**params.model_dump(), "run_dir": paths.shown(held.path)}, out=Progress())
    try:
        with _server(held, notebooks) as chain.env:
            chain.run(notebooks)
        if chain.stop.signum is not None:
            held.finish(stopped=chain.stop.name)
            say(f"stopped by {chain.stop.name}; go on with: capturebook run --run-dir {where(held)}")
            return 128 + chain.stop.signum
        return _end(held, args.expect)
    finally:
        held.close()


def _comparison(args) -> int | None:
    """The exit status of a comparison of launches, None when the preset is parameters of the chain."""
    try:
        if not comparison.is_comparison(args.preset, "preset"):
            return None
        given = [flag for flag in ("set", "only", "run_dir", "expect") if getattr(args, flag)]
        if given:
            raise ValueError(f"--{given[0].replace('_', '-')}: given with a comparison of launches; allowed: --host")
        return launching.compare_launches(args.preset, args.host)
    except (ValueError, FileNotFoundError) as exc:
        raise InputError(exc) from None


def _parameters(args, facts: dict) -> tuple:
    """Validated parameters, and a line on where they come from."""
    again = not args.preset and args.run_dir and holds_run(paths.given(args.run_dir))
    if again:
        values, why = RunFolder.open(paths.given(args.run_dir)).info["parameters"], "parameters: as recorded in the run"
    else:
        name, why = (args.preset, "as asked") if args.preset else doctor.choose_preset(facts)
        values, why = load_preset(name), f"preset {name}: {why}"
    params = validate(apply_sets(values, args.set))
    subject = locate(params.subject, Path.cwd(), params.options, params.question)
    return params.model_copy(update={"subject": subject}), why


def _which(held: RunFolder) -> str:
    """Whether this goes on with a run that is there: a slip in its name would begin another."""
    return ", which goes on" if len(held.info["invocations"]) > 1 else ", a new run"


def _hold(args, params, facts: dict) -> RunFolder:
    """The run folder, made or resumed."""
    hypothesis, question, planned = plan.ask(params)
    if args.run_dir:
        path = paths.given(args.run_dir)
    else:
        path = paths.resolve(params.run_dir) if params.run_dir else claim(params.preset)
    if holds_run(path):
        held = RunFolder.resume(path, params, hypothesis, question, facts)
        say(*(f"note: {line}" for line in held.records()[1]))
        return held
    return RunFolder.create(path, params, hypothesis, question, planned, facts)


def choose(only: str) -> list[Path]:
    """The numbered notebooks, or those of them that `only` ("00,02") names. Raises ValueError, one line."""
    folder = paths.repository() / "notebooks"
    by_number = {path.name[:2]: path for path in sorted(folder.glob("[0-9][0-9]_*.ipynb"))}
    if not by_number:
        raise ValueError(f"notebooks: {paths.shown(folder)} holds no numbered notebook")
    wanted = [part for part in re.split(r"[,\s]+", only) if part] if only else list(by_number)
    for number in wanted or [only]:
        if number not in by_number:
            raise ValueError(f"--only: given {number!r}; allowed: {', '.join(by_number)}")
    return [path for number, path in by_number.items() if number in wanted]


@contextlib.contextmanager
def _server(held: RunFolder, notebooks: list[Path]):
    """One probe server for all notebooks, as variables for them: importing torch costs more than most probes."""
    if all(path.name[:2] in WITHOUT_PROBES for path in notebooks):
        yield {}
        return
    server = servers.start_shared(held.path / "logs" / "probe-server.log")
    try:
        yield {servers.SHARED: server.path}
    finally:
        server.close()


def _end(held: RunFolder, expected: str | None) -> int:
    """Verdict, report, last lines, exit status."""
    from ..report import html, rendered, run_data, summary

    shutil.rmtree(held.path / caches.STORE, ignore_errors=True)
    held.finish()
    verdict = plan.verdict(held)
    held.write_json("verdict.json", verdict.to_json())
    missing = incomplete(held)
    try:
        rendered.render_notebooks(held.path)
    except ValueError as exc:  # papermill was killed while it wrote one
        missing.append(str(exc))
    report = html.build(held.path)
    data = run_data.RunData.open(held.path)
    say("")
    tell(*summary.opening(data))
    if data.decided:
        tell(*verdict.lines())
    elif sample := run_data.sample_run(data):
        when = sample.info["started"][:10]
        tell(f"The same question, recorded elsewhere ({sample.gpu}, {when}): {summary.headline(sample)}.")
    say(*(f"incomplete: {line}" for line in missing))
    status = INCOMPLETE if missing else COMPLETE
    if expected and verdict.owner != expected:
        say(f"expected owner {expected}, found {verdict.owner}")
        status = status or UNEXPECTED
    tell(f"report: {paths.from_here(report)}")
    return status
