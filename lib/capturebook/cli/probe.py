"""`capturebook probe`: one step, its controls and the arms that its question needs, in a small run of their own."""

import json
from dataclasses import replace
from pathlib import Path

from .. import paths
from ..attribution import plan as attribution_plan
from ..attribution.evidence import breach
from ..chain import plan
from ..chain.folder import RunFolder
from ..chain.runfiles import claim, holds_run
from ..params import validate
from ..params.declared import BUILT_IN, KERNELS
from ..probes import ProbePool
from ..records import Arm
from . import tracing
from .broken import broken
from .common import COMPLETE, INCOMPLETE, InputError, emit, incomplete, say, tell, where
from .target import locate

HYPOTHESIS = "own_kernel"
"""Without a --question it asks the default one: captured, and if that passes, compiled too."""


def probe(args) -> int:
    """Probe, judge, print. Raises InputError before anything is started."""
    try:
        params = _parameters(args)
        hypothesis, question, planned = plan.ask(params)
        if args.device == "cpu" and not (args.arm_only and question.arm.capture == "none"):
            raise InputError("--device: given 'cpu'; allowed: cuda, or cpu with --arm-only and capture=none")
        if args.smallest and args.arm_only:
            raise InputError("--smallest: given with --arm-only; allowed: one of the two, the search needs many arms")
        path = _folder(args.run_dir) if args.run_dir else claim("probe")
        if holds_run(path):
            run = RunFolder.resume(path, params, hypothesis, question)
        else:
            run = RunFolder.create(path, params, hypothesis, question, planned)
    except (ValueError, FileNotFoundError) as exc:
        raise InputError(exc) from None
    say(f"run folder: {where(run)}")
    try:
        return (
            _alone(run, question, args.device, args.json) if args.arm_only else _decide(run, args.json, args.smallest)
        )
    finally:
        run.close()


def _folder(given: str) -> Path:
    try:
        return paths.given(given)
    except ValueError as exc:
        raise ValueError(f"--run-dir: given {exc}") from None


def _parameters(args):
    """Those of a run that asks about one step; the kernels, which only a sweep reads, are the subject's own."""
    given = pairs(args)
    subject = locate(args.target, Path.cwd(), given["options"], args.question)
    own = {"kernels": list(KERNELS[subject][0])} if subject in KERNELS else {}
    if subject == BUILT_IN:  # its keywords that are parameters too
        own |= {name: given["options"][name] for name in ("heads", "cache") if name in given["options"]}
    return validate(
        {
            "preset": "probe",
            "hypothesis": HYPOTHESIS,
            "subject": subject,
            **own,
            "question": args.question,
            "preload": args.preload,
            **given,
            "deadline": args.deadline,
        }
    )


def pairs(args) -> dict:
    """The parameters `options` and `env` from --option and --env. Raises InputError."""
    return {"options": _pairs("--option", args.option, json.loads), "env": _pairs("--env", args.env, str)}


def _pairs(flag: str, texts: list[str], read) -> dict:
    found = {}
    for name, value in (_pair(flag, text, read) for text in texts):
        if name in found:
            raise InputError(f"{flag}: {name} is given twice; allowed: once")
        found[name] = value
    return found


def _pair(flag: str, text: str, read) -> tuple:
    name, equals, value = text.partition("=")
    try:
        if equals and name:
            return name, read(value)
    except (ValueError, RecursionError):
        raise InputError(f"{flag}: given {text[:80]!r}; allowed: NAME=JSON (text in quotes)") from None
    raise InputError(f"{flag}: given {text!r}; allowed: NAME=VALUE")


def _alone(run: RunFolder, question, device: str, as_json: bool) -> int:
    """The asked arm once; its record is the result."""
    asked = attribution_plan.arm_probe(question.arm, run.info["parameters"])
    if device == "cpu":
        asked = replace(asked, args={**asked.args, "device": "cpu"})
    with ProbePool(run, on_event=say) as pool:
        (record,) = pool.run([asked])
    run.finish()
    if as_json:
        emit(record.model_dump())
    error = breach(record) or record.root
    told = f": {error.type}: {error.text}" if error else f": {record.reason}" if record.reason else ""
    log = f"log: {where(run)}/{record.log}" if record.log else "no log"
    tell(f"{record.status} at {record.stage}{told}", log, as_json=as_json)
    return INCOMPLETE if record.status in ("not_run", "skipped", "timeout") or broken(record) else COMPLETE


def _decide(run: RunFolder, as_json: bool, with_smallest: bool) -> int:
    """Controls and arms until the verdict is closed, or nothing more can help."""
    with ProbePool(run, on_event=say) as pool:
        plan.pursue(run, pool, say, with_smallest)
        traced = None if pool.gpu else tracing.run(run, pool)
    run.finish()
    verdict = plan.verdict(run)
    run.write_json("verdict.json", verdict.to_json())
    no_step = broken(traced) if traced else ""
    if traced and not no_step:
        tell(*tracing.told(traced), as_json=as_json)
    if as_json:
        more = {"undecided": tracing.UNDECIDED, "trace": tracing.shown(traced)} if traced else {}
        emit({**verdict.to_json(), "run": where(run), **more})
    if no_step:
        tell(no_step, as_json=as_json)
        return INCOMPLETE
    tell(*_as_script(run, verdict), as_json=as_json)
    tell(*verdict.lines(), as_json=as_json)
    undecided = verdict.owner == "undetermined" and incomplete(run)
    return INCOMPLETE if verdict.owner == "not_run" or undecided else COMPLETE


def _as_script(run: RunFolder, verdict) -> list[str]:
    """How to take the failure out of the run, where the verdict rests on one."""
    asked = Arm(**verdict.question["arm"])
    failed = [r.probe for r in run.records()[0] if r.probe in verdict.records and r.role == "arm" and r.arm == asked]
    if not failed or verdict.root is None:
        return []
    return [f"as a script of its own: capturebook repro {where(run)} {failed[0]} -o repro.py"]
