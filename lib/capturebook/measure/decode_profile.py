"""GPU time and launches of a timed point's variants by class of work, from one profile of all of them."""

from functools import partial

from .decode_point import Point


def classes(point: Point, wanted: bool = True) -> dict[str, dict]:
    """{variant: us and launches of a layer by class and the longest kernels; seconds of its first call}.

    classes is None if not wanted, with lanes, whose kernels run side by side, and compiled whole, where kernels are
    of several. As many replays are looked at as a timed sample has, from the same positions on: what only every 128th
    token does is in both. All variants are in one profile, which takes longer to begin and to end than a step does.
    """
    import torch

    from .decode_variants import function
    from .kernel_classes import labelled, launched, part, parted, profile, times

    found = {name: {"classes": None, "first_call_s": point.first_call_s[name]} for name in point.graphs}
    names = [name for name in point.graphs if not point.switches[name].overlap and not point.switches[name].whole]
    if not wanted or not names:
        return found
    plain = {name: partial(function(point.stack, point.switches[name], labelled), *point.inputs) for name in names}

    def run():
        for name in names:
            point.pin(name)
            for how, count, step in (
                ("plain", 1, plain[name]),
                ("replay", point.replays[name], point.graphs[name].replay),
            ):
                point.positions.copy_(point.start)
                torch.cuda.synchronize()
                for number in range(count):
                    with part(f"{name}: {how} {number}"):
                        step()

    with torch.no_grad(), point.clock("profile"):
        events = parted(profile(run))
    for name in names:
        replays = [events[f"{name}: replay {number}"] for number in range(point.replays[name])]
        seen = times(replays, launched(events[f"{name}: plain 0"]))
        found[name] |= {
            "classes": {group: us / point.layers for group, us in seen["us"].items()},
            "launches": {group: count / point.layers for group, count in seen["launches"].items()},
            "top": [{**one, "us": one["us"] / point.layers} for one in seen["top"]],
            "others": [{**one, "launches": one["launches"] / point.layers} for one in seen["others"]],
            "profiled": point.replays[name],
        }
    return found
