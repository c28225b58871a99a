"""What a sweep measured, in sentences: the notebook's conclusion, the report's head and the terminal say the same."""

from ..measure.decode_model import most, whole
from ..records import Record
from . import words
from .decode_rank import extrapolated, of_rank
from .figures_decode_jobs import of_part, said_of_buckets, said_of_compile
from .figures_peers import FLASHMLA, targets_met
from .figures_targets import met


def timed(points: list[dict]) -> str:
    """`55 of 57 sweep points timed.`"""
    return f"{sum(bool(p['us']) for p in points)} of {words.counted(len(points), 'sweep point')} timed."


def found(points: list[dict]) -> str:
    """Of the decode step the whole model's throughput; else the best with its distance from the floor, and the targets.

    FlashMLA is what ours is held against, so it is never the best here. "" where nothing was timed.
    """
    done = [p for p in points if p["us"]]
    if not done:
        return ""
    if model := whole(done) or most(done):
        return _of_the_model(model)
    ours = [p for p in done if p["kernel"] not in FLASHMLA] or done
    best = max(ours, key=lambda p: p["tokens_per_second"] or 0)
    floor = f", {words.of_floor(best)} times the floor" if best.get("share") else ""
    where = f"{best['variant']} at {words.point(best)}{_which(best, ours)}{floor}"
    said = f"Most tokens a second: {best['tokens_per_second'] or 0:,.0f} by {where}."
    return " ".join(filter(None, [said, targets_met(points), met(points)]))


def _which(best: dict, points: list[dict]) -> str:
    """`, window alone, 128 tokens`, `, fp8 keys`: what sets a point apart from others that were asked for more work."""
    names = {"lists": "{}", "key_format": "{} keys", "lengths": "{} lengths"}
    several = [name for name in names if len({p.get(name) for p in points}) > 1 and best.get(name)]
    return "".join(f", {names[name].format(best[name])}" for name in several)


def _of_the_model(rows: list[dict]) -> str:
    """The fastest rung of the decode step and what it is over the first one at the same point."""
    best = max(rows, key=lambda row: row["tokens_per_second"])
    place = ("batch", "context", "max_context")
    first = next(row for row in rows if all(row[name] == best[name] for name in place))
    alone = f"{of_rank(best['tp'])}, no communication," if best["tp"] > 1 else of_rank(best["tp"])
    return (
        f"Extrapolated to {extrapolated(rows)}: {best['tokens_per_second']:,.0f} tok/s of {alone} with "
        f"{best['variant']!r} at {words.point(best)}, {first['us'] / best['us']:.1f} times what {first['variant']!r} "
        "gives there."
    )


def jobs(records: list[Record]) -> list[str]:
    """What batch buckets and torch.compile on the decode step came to, a sentence or two each; [] where neither ran."""
    made = [said_of_buckets(r) for r in of_part(records, "buckets") if r.payload.get("buckets")]
    return [*made, *said_of_compile(records)]
