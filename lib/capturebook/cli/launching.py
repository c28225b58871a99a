"""`capturebook launch`, `launches`, `attach` and `stop`: start something here or over SSH and prove that it runs."""

import contextlib
import errno
import math
from functools import partial
from pathlib import Path

from .. import launch as launching
from .. import params as parameters
from .. import paths
from ..launch import checkout
from ..launch.servers import compare, comparison
from .common import COMPLETE, INCOMPLETE, InputError, can_be_file, emit, say, tell
from .target import locate

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
NO_RECORD = "its launcher left no record: attach"
LONGEST = 120
"""Characters of a reason in the list."""
GOES_ON = "what was started goes on without us; `capturebook launches`, `attach ID` and `stop ID` find it"


def add_commands(add) -> None:
    """Register the four; `add(name, function, help)` makes a subcommand's parser."""
    p = add("launch", launch, "start a script or server here or over SSH, each stage proven before the next")
    p.add_argument("file", nargs="+", metavar="FILE", help="launch file (YAML), or a comparison of launches: with arms")
    p.add_argument("--host", metavar="H", help="where, as ssh takes it; else this machine")
    p.add_argument("--json", action="store_true", help="the record on stdout")

    p = add("launches", launches, "list launches: state as last seen from here")
    p.add_argument("--json", action="store_true", help="on stdout")

    p = add("attach", attach, "follow a launch until it is ready or has ended, whoever started it")
    p.add_argument("id", metavar="ID", help="as launches shows it, or its beginning")
    p.add_argument("--log", action="store_true", help="show the program's lines, of a ready server until Ctrl-C")
    p.add_argument("--json", action="store_true", help="the record on stdout")

    p = add("stop", stop, "end a launch's processes, by recorded process and start time")
    p.add_argument("id", metavar="ID", help="as launches shows it, or its beginning")
    p.add_argument("--grace", type=float, default=10.0, metavar="S", help="seconds between SIGTERM and SIGKILL")
    p.add_argument("--json", action="store_true", help="the record on stdout")


def launch(args) -> int:
    """Exit status 0 only when ready, or for a script when its `result` holds; 3 otherwise."""
    for name in args.file:
        can_be_file("launch file", name)
    try:
        if len(args.file) > 1:
            with _surviving():
                return _in_order(args)
        if comparison.is_comparison(args.file[0]):
            return compare_launches(args.file[0], args.host, args.json)
        spec = launching.load(args.file[0])
        return _told(args, partial(launching.launch, spec, args.host, on_event=say), goes_on=spec.result is None)
    except (launching.LaunchFileError, FileNotFoundError) as exc:
        raise InputError(exc) from None


def _in_order(args) -> int:
    """Exit status 0 only when all got ready or done, each after the one before it."""
    specs = [launching.load(name) for name in args.file]
    records = launching.launch_in_order(specs, args.host, on_event=say)
    stopped = {record.run for record in records if "stopped" in record.payload}
    for spec, record in zip(specs, records):
        if spec.result is None and record.status == "pass" and record.run not in stopped:
            _goes_on(record)
    if args.json:
        emit([record.model_dump() for record in records])
    return COMPLETE if all(record.status == "pass" for record in records[: len(specs)]) else INCOMPLETE


def compare_launches(file: str, host: str | None, as_json: bool = False) -> int:
    """Exit status 0 only when every arm got ready, or failed by what its log says; 3 otherwise."""
    from ..report import launch_page

    with _surviving():
        compared = compare.compare(comparison.load_comparison(file), host, on_event=say)
    page = launch_page.build(compared.path)
    tell(*compare.lines(compared), f"report: {paths.from_here(page)}", as_json=as_json)
    if as_json:
        emit(compared.to_json())
    return COMPLETE if all(one.conclusive for one in compared.tried) else INCOMPLETE


def attach(args) -> int:
    """With --log a ready server is followed on; who stops reading ends that as Ctrl-C does."""

    def show(line: str) -> None:
        if not tell(f"  | {line}", as_json=args.json):
            raise KeyboardInterrupt

    return _told(args, partial(launching.attach, args.id, on_event=say, show=show if args.log else None))


def stop(args) -> int:
    if not 0 <= args.grace < math.inf:
        raise InputError(f"--grace: given {args.grace:g}; allowed: seconds, 0 or more")
    return _told(args, partial(launching.stop, args.id, on_event=say, grace=args.grace), done="stopped")


def launches(args) -> int:
    """A row each, oldest first: id, state, where, and the record that counts; its whole reason with --json."""
    rows = []
    try:
        found = launching.entries()
    except launching.LaunchError as exc:
        raise InputError(exc) from None
    for entry in found:
        last = entry.verdict()
        rows.append(
            {
                "id": entry.id,
                "state": entry.info["state"],
                "host": entry.info["host"],
                "began": entry.info["began"],
                "status": last.status if last else None,
                "reason": last.reason if last else "",
            }
        )
    if args.json:
        emit(rows)
        return COMPLETE
    shown = [("LAUNCH", "STATE", "HOST", "CAME OUT")] * bool(rows)
    for row in rows:
        last = ": ".join(filter(None, [row["status"].replace("_", " "), row["reason"]])) if row["status"] else NO_RECORD
        shown.append((row["id"], row["state"], row["host"] or "here", last[:LONGEST]))
    wide = [max(map(len, column)) for column in zip(*shown)]
    for *cells, last in shown:
        tell("  ".join([*(cell.ljust(width) for cell, width in zip(cells, wide)), last]))
    if not rows:
        say("no launches yet")
    return COMPLETE


def run_there(args) -> int:
    """`capturebook run --host`: the chain on another host; the exit status is the chain's own."""
    if args.run_dir:
        raise InputError(f"--run-dir: given {args.run_dir!r}; allowed: nothing with --host, a run there is always new")
    preset = args.preset or ""
    try:
        if preset:
            parameters.validate(parameters.apply_sets(parameters.load_preset(preset), args.set))
        if preset.endswith((".yaml", ".yml")):
            preset = checkout.delivered("preset", paths.given(preset))
        arguments = [*([preset] if preset else []), *(f"--set={_there(item)}" for item in args.set)]
        arguments += [f"--only={args.only}"] * bool(args.only) + [f"--expect={args.expect}"] * bool(args.expect)
        name = Path(preset).stem or "run"
        with _surviving():
            record = launching.run_there(
                args.host, name, arguments, args.python or "python3", on_event=say, show=_lines
            )
    except (ValueError, FileNotFoundError) as exc:
        raise InputError(exc) from None
    if record.status != "pass":
        return INCOMPLETE
    _fetched(record)
    return record.payload["status"]


def _there(item: str) -> str:
    """A parameter as the host can read it: a subject's file by its name in the checkout, wherever it was typed."""
    name, _, value = item.partition("=")
    if name != "subject":
        return item
    file, _, build = locate(value, Path.cwd()).rpartition(":")
    return f"subject={checkout.delivered(name, paths.resolve(file))}:{build}" if file.endswith(".py") else item


def _fetched(record, as_json: bool = False) -> None:
    """Write the fetched run's report anew: it shows the launch too."""
    from ..report import html

    run = record.payload["run"]
    tell(f"run folder: {run}", f"report: {paths.from_here(html.build(paths.resolve(run)))}", as_json=as_json)


@contextlib.contextmanager
def _surviving(full: tuple[str, ...] = (GOES_ON,)):
    """Who stops us is told that what we started is not stopped; so, by `full`, is one whose disk takes no more."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        say(GOES_ON)
        raise
    except OSError as exc:
        if exc.errno not in FULL:
            raise
        say(f"capturebook: outputs cannot be written: {exc.strerror}", *full)
        raise SystemExit(INCOMPLETE) from None


def _lines(line: str) -> None:
    say(f"  | {line}")


def _goes_on(record) -> None:
    say(f"it goes on: capturebook attach {record.run} --log; capturebook stop {record.run}")


def _told(args, act, goes_on: bool = False, done: str = "") -> int:
    """Exit status 0 when the record passed, or its payload has `done`."""
    try:
        with _surviving(() if done else (GOES_ON,)):
            record = act()
    except launching.LaunchError as exc:
        raise InputError(exc) from None
    if "run" in record.payload and record.status == "pass":
        _fetched(record, args.json)
    if goes_on and record.status == "pass":
        _goes_on(record)
    if args.json:
        emit(record.model_dump())
    return COMPLETE if record.status == "pass" or done in record.payload else INCOMPLETE
