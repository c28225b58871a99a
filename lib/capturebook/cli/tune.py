"""`capturebook tune`: candidates of the decode kernels timed on the GPU at hand, the best of them as pinned tunings."""

import json
from pathlib import Path

from .. import paths
from ..chain import plan
from ..chain.folder import RunFolder
from ..chain.runfiles import claim
from ..measure.tune import SHAPES
from ..params import validate
from ..probes.lease import gpu_uuid
from .common import COMPLETE, INCOMPLETE, InputError, emit, say, tell, where

KERNELS, CACHES = ("mma", "simt"), ("bf16", "fp8")

PINNED = Path(__file__).parents[1] / "kernels" / "sparse_mla" / "pinned.json"


def add_command(add) -> None:
    p = add("tune", tune, "time candidates of the decode kernels on this GPU, and pin the best")
    p.add_argument("--kernel", choices=KERNELS, default="mma", help="kernel to tune")
    p.add_argument("--shape", choices=SHAPES, default="flash", help="whose lists and heads; v32 has a cache of its own")
    p.add_argument("--cache", choices=CACHES, help="cache format that it reads (fp8)")
    p.add_argument("--heads", type=int, metavar="N", help="query heads, where a rank has fewer than the shape")
    p.add_argument("--batches", default="1,8,32,64,256", metavar="N,N", help="an entry each, the last for all above")
    p.add_argument("--samples", type=int, default=15, metavar="N", help="replays of each candidate")
    p.add_argument("--write", action="store_true", help="into pinned.json; else the entries are only shown")
    p.add_argument("--run-dir", metavar="RUN", help="run folder to make")
    p.add_argument("--json", action="store_true", help="the entries on stdout")


def tune(args) -> int:
    """Entries for the batches asked for. Exit 3 when a batch was not timed; nothing is written then."""
    from ..measure.tune import Bucket, plan_tune
    from ..probes import ProbePool

    batches = _batches(args.batches)
    if args.shape == "v32" and args.kernel != "mma":
        raise InputError(f"--kernel: given {args.kernel!r}; allowed: mma, where --shape is v32")
    if args.shape == "v32" and args.cache:
        raise InputError(f"--cache: given {args.cache!r}; allowed: none, where --shape is v32, which has its own")
    cache = "v32" if args.shape == "v32" else args.cache or "fp8"
    heads = SHAPES[args.shape] if args.heads is None else args.heads
    if gpu_uuid() is None:
        raise InputError("needs a CUDA GPU")
    given = {"preset": "tune", "kernels": [args.kernel], "heads": heads, "batches": batches}
    try:
        params = validate(given | {"samples": args.samples, "deadline": 600.0})
        hypothesis, question, _ = plan.ask(params)
        run = RunFolder.create(
            paths.given(args.run_dir) if args.run_dir else claim("tune"), params, hypothesis, question
        )
    except ValueError as exc:
        raise InputError(exc) from None
    run.note(command="tune")
    buckets = [Bucket(args.kernel, cache, heads, batch, args.shape) for batch in batches]
    say(f"run folder: {where(run)}")
    try:
        with ProbePool(run, on_event=say) as pool:
            records = pool.run(plan_tune(buckets, params))
    finally:
        run.finish()
    return _pin(args, buckets, records, run.info["provenance"])


def _pin(args, buckets: list, records: list, facts: dict) -> int:
    """Tell the entries, and write them where that was asked for."""
    from ..measure.limits import parse_target
    from ..measure.tune import entry, merged

    cache, heads = buckets[0].cache, buckets[0].heads
    found = {}
    for bucket, record in zip(buckets, records):
        try:
            found[bucket.batch] = entry(record, facts)
        except ValueError as exc:
            say(f"batch {bucket.batch}: {exc}")
    if len(found) < len(buckets):
        return INCOMPLETE
    for batch, one in found.items():
        timed = (f"  {us:8.2f} us  {name}" for name, us in one["timed"].items())
        tell(f"batch {batch}: {one['source']}", *timed, as_json=args.json)
    if args.json:
        emit(list(found.values()))
    if args.write:
        name = args.kernel if cache == "bf16" else f"{args.kernel}_{cache}"
        sm = parse_target(facts["gpu"]["sm"])
        table = merged(json.loads(PINNED.read_text()), name, sm, heads, found)
        PINNED.write_text(json.dumps(table, indent=1) + "\n")
        tell(f"written: {paths.from_here(PINNED)}", as_json=args.json)
    return COMPLETE


def _batches(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) for word in words) or len(set(words)) < len(words):
        raise InputError(f"--batches: given {text!r}; allowed: numbers above 0, each once, such as 1,8,64")
    return sorted(map(int, words))
