"""The command line. Its answer goes to stdout (with --json that JSON alone), progress and errors to stderr.

Exit status: 0 complete, whatever the verdict; 2 bad input, nothing started; 3 something that could run here did not,
a control misbehaved (probe: not run, or undetermined beside one of these), or the result could not be written; 4
--expect not met; 129, 130 and 143 stopped by SIGHUP, Ctrl-C and SIGTERM.
"""

import argparse
import signal
import sys

from .. import paths
from ..files import FULL
from . import build, counters, gallery, launching, look, probe, repro, run, tune
from .common import BAD_INPUT, INCOMPLETE, InputError, say

OWNERS = ("none", "kernel", "stack", "environment", "not_run", "undetermined")


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit status. Bad input is one line for each mistake, on stderr."""
    args = parser().parse_args(argv)
    # As an exception, so that probes and their folders are cleared away; the default action would leave them.
    # What is ignored (SIGHUP under nohup) stays ignored.
    ending = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda got, _: sys.exit(128 + got)) for number in ending}
    try:
        if getattr(args, "run_dir", None) == "":  # an unset variable of a shell
            raise InputError("--run-dir: given ''; allowed: a folder; without it, one is made under outputs/")
        return args.command(args)
    except (InputError, paths.NoCheckout) as exc:
        say(f"capturebook {args.name}: {exc}")
        return BAD_INPUT
    except OSError as exc:
        if exc.errno not in FULL or exc.filename is None:
            raise
        say(f"capturebook {args.name}: {paths.shown(exc.filename)} cannot be written: {exc.strerror}")
        return INCOMPLETE
    except KeyboardInterrupt:
        say(f"capturebook {args.name}: stopped by Ctrl-C")
        return 128 + signal.SIGINT
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="capturebook",
        description="Does a GPU kernel or decode step survive CUDA graph capture, torch.compile, and both together?",
        epilog=f"exit status: 0 complete, 2 bad input, {INCOMPLETE} incomplete, 4 --expect not met, over 128 stopped",
    )
    commands = top.add_subparsers(dest="name", metavar="COMMAND", required=True)

    def add(name: str, command, help: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=help)
        added.set_defaults(command=command)
        return added

    p = add("run", run.run, "run the notebooks, from hypothesis to verdict and report")
    p.add_argument("preset", nargs="?", metavar="PRESET", help="a name in params/ or a YAML file; else doctor chooses")
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter; JSON if not text")
    p.add_argument("--only", default="", metavar="NN,NN", help="numbers of the notebooks to run, e.g. 00,02,03,05")
    p.add_argument("--run-dir", metavar="RUN", help="run folder to make or to resume")
    p.add_argument("--expect", choices=OWNERS, metavar="OWNER", help=f"exit 4 unless it is: {', '.join(OWNERS)}")
    p.add_argument("--host", metavar="H", help="run there, over ssh, and fetch the run folder")
    p.add_argument("--python", metavar="P", help="with --host: the interpreter there; else python3")

    p = add("probe", probe.probe, "probe one step: controls, the question's arms, a verdict; without a GPU its trace")
    p.add_argument("target", metavar="TARGET", help="pkg.mod:build or file.py:build")
    _about_step(p)
    p.add_argument("--question", default="", metavar="FACTOR=VALUE,...", help="the arm asked about")
    p.add_argument("--deadline", type=float, default=60.0, metavar="S", help="seconds a process may take")
    p.add_argument("--smallest", action="store_true", help="probe also which factors the failure needs, all together")
    p.add_argument("--arm-only", action="store_true", help="run the asked arm once, without controls or verdict")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: with --arm-only and capture=none")
    p.add_argument("--run-dir", metavar="RUN", help="run folder to make or to resume")
    p.add_argument("--json", action="store_true", help="the verdict (with --arm-only: the record) on stdout")

    p = add("verdict", look.verdict, "compute a run's verdict from its records")
    p.add_argument("run", metavar="RUN", help="run folder")
    p.add_argument("--json", action="store_true", help="on stdout")

    p = add("report", look.report, "write a run's report.html and its notebooks as pages")
    p.add_argument("run", metavar="RUN", help="run folder; or one in outputs/launches/ or outputs/comparisons/")

    p = add("build", build.build, "cross-compile the kernels for GPUs that need not be here")
    p.add_argument("target", nargs="?", metavar="TARGET", help="pkg.mod:build or file.py:build; else the built-in ones")
    _about_step(p)
    p.add_argument("--targets", default="", metavar="NN,NN", help="e.g. sm_90,sm_120; else the parameters' default")
    p.add_argument("--pinned", action="store_true", help="only the pinned and the first configuration of each kernel")
    p.add_argument("--deadline", type=float, default=180.0, metavar="S", help="seconds a compilation may take")
    p.add_argument("--json", action="store_true", help="rows on stdout")

    repro.add_commands(add)

    p = add("gallery", gallery.gallery, "planted failures of every class and sound steps: judge them all")
    p.add_argument("--list", action="store_true", help="name the cases and run nothing")
    p.add_argument("--only", action="append", default=[], metavar="ID", help="this case alone; may be given again")
    p.add_argument("--shard", default="", metavar="I/N", help="every N-th case from the I-th")
    p.add_argument("--from", dest="recorded", metavar="RUN", help="recompute from a gallery run's records; no GPU")
    p.add_argument("--limit", type=float, default=0.0, metavar="S", help="stop after this many seconds; 0 never")
    p.add_argument("--parallel", type=int, default=0, metavar="N", help="probes at a time; 0 chooses by cores")
    p.add_argument("--run-dir", metavar="RUN", help="run folder to make")
    p.add_argument("--json", action="store_true", help="{case, expected, got, seconds} on stdout")

    tune.add_command(add)

    counters.add_command(add)

    launching.add_commands(add)

    p = add("params", look.params, "list the parameters")
    p.add_argument("--write", action="store_true", help="write the parameters cell into the notebooks")
    p.add_argument("--json", action="store_true", help="on stdout")

    p = add("doctor", look.doctor, "say which preset suits this machine, and what it cannot run")
    p.add_argument("--json", action="store_true", help="on stdout")
    return top


def _about_step(p: argparse.ArgumentParser) -> None:
    p.add_argument("--option", action="append", default=[], metavar="NAME=JSON", help="a keyword for build")
    p.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="set before the process starts")
    p.add_argument("--preload", action="append", default=[], metavar="MODULE", help="imported before the target")
