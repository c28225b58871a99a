"""`capturebook gallery`: the planted failures and sound steps, judged, and compared with what is known of them."""

from .. import paths
from ..attribution import load_hypothesis
from ..chain.folder import RunFolder
from ..chain.runfiles import claim
from ..gallery.case import REPAIRED
from ..gallery.cases import CASES, chosen
from ..gallery.evaluate import HYPOTHESIS, entries, with_repaired
from ..gallery.exhibit import classes, exhibit
from ..gallery.run import GalleryRun, OutOfTime, line
from ..params import validate
from ..probes.lease import gpu_uuid
from ..records import Question, latest
from ..report import gallery_page
from .common import COMPLETE, INCOMPLETE, UNEXPECTED, InputError, emit, opened, say, tell, where


def gallery(args) -> int:
    """List, run or recompute. Raises InputError before anything is started."""
    try:
        cases = chosen(args.only, args.shard)
    except ValueError as exc:
        raise InputError(exc) from None
    if args.list and args.recorded:
        raise InputError("--list: names the cases; --from is for a recorded run's results: give one of them")
    if args.list:
        return _list(cases, args.json)
    if args.recorded:
        return _recompute(opened(args.recorded), args.json)
    if gpu_uuid() is None:
        raise InputError("needs a CUDA GPU; without one: --list, or --from RUN")
    params = validate({"preset": "gallery", "hypothesis": HYPOTHESIS})
    try:
        run = RunFolder.create(
            paths.given(args.run_dir) if args.run_dir else claim("gallery"),
            params,
            load_hypothesis(HYPOTHESIS).model_dump(),
            Question(),
        )
    except ValueError as exc:
        raise InputError(exc) from None
    say(f"run folder: {where(run)}")
    work = GalleryRun(run, cases, say)
    try:
        work.pursue(args.parallel, args.limit)
    except OutOfTime:
        say(f"stopped after {args.limit:g} s, as asked")
    finally:
        run.finish()
        status = _report(run, work.asked, work.known, work.results, work.unfinished, args.json)
    return status


def _list(cases, as_json: bool) -> int:
    if as_json:
        rows = [{"case": c.id, "owner": c.owner, "class": c.cls, "question": c.question, "step": c.step} for c in cases]
        more = [{"symptom": c.symptom, "silent": c.silent, "source": c.source} for c in cases]
        emit([row | rest for row, rest in zip(rows, more)])
        return COMPLETE
    for case in cases:
        told = f"  (retells {case.thread})" if case.thread else ""
        tell(f"{case.id:<30} {case.cls or 'sound':<6} {case.symptom}{told}")
    return COMPLETE


def _recompute(run: RunFolder, as_json: bool) -> int:
    """The results from a run's records, by the rules as they are now."""
    plan = run.info["plan"]
    if not plan or not all(isinstance(entry, dict) and "case" in entry for entry in plan):
        raise InputError(f"--from: given {where(run)!r}, which is no gallery's run; allowed: a run folder of one")
    table = {case.id: case for case in with_repaired(list(CASES.values()))}
    asked, gone = entries(plan, table, run.nonce)
    try:
        records, aside = run.records()
    except ValueError as exc:
        raise InputError(exc) from None
    say(*(f"note: {line}" for line in aside))
    known = latest([record for record in records if record.kind == "step"])
    open_ones = [a.case.id for a in asked if a.wants(known)]
    results = [a.result(known) for a in asked if a.case.id not in open_ones]
    say(*(f"{name}: in the run, but no case any more" for name in gone))
    return _report(run, asked, known, results, open_ones, as_json)


NO_BLAME = ("none", "not_run", "undetermined")


def _report(run: RunFolder, asked, known, results: list[dict], unfinished: list[str], as_json: bool) -> int:
    """The page, the results on stdout, and last the mismatches."""
    by_case = {result["case"]: result for result in results}
    shown = [a for a in asked if a.case.id in by_case and not a.case.id.endswith(REPAIRED)]
    exhibits = [exhibit(a, known, by_case[a.case.id], by_case.get(a.case.id + REPAIRED)) for a in shown]
    page = gallery_page.build(run.path, run.info, classes(), sorted(exhibits, key=lambda e: list(CASES).index(e["id"])))
    if as_json:
        emit(results)
    wrong = [result for result in results if not result["ok"]]
    accused = [r["case"] for r in wrong if r["expected"]["owner"] == "none" and r["got"]["owner"] not in NO_BLAME]
    if unfinished:
        tell(f"not decided: {', '.join(unfinished)}", as_json=as_json)
    tell(*(f"{line(result)}\n       {result['says']}" for result in wrong), as_json=as_json)
    tell(
        f"{len(results) - len(wrong)} of {len(results)} cases as known, {len(accused)} sound ones accused; "
        f"page: {paths.from_here(page)}",
        as_json=as_json,
    )
    return INCOMPLETE if unfinished else UNEXPECTED if wrong else COMPLETE
