"""After a wrong result: what the rules need to tell whose it is. Runs in the probe's process, after all comparisons."""

from collections import Counter

from ..subjects.step import outputs_by_name
from .compare import clone, compare, copy_into


def deterministic(calls) -> bool:
    """Whether two plain calls of the step from the same state and inputs agree within its tolerance."""
    results = [plain_call(calls) for _ in range(2)]
    return all(check.ok for check in compare("plain", results[0], results[1], calls.step.tolerance))


def plain_call(calls) -> dict:
    """Outputs of one uncompiled, uncaptured call on clones of the inputs, with the state put back afterwards."""
    state = clone(calls.state())
    with calls.on_stream(), calls.around():
        outputs = clone(outputs_by_name(calls.step.fn(*clone(calls.inputs))))
    calls.synchronize()
    copy_into(calls.state(), state)
    return outputs


def kernels_missing(calls, fn, captured) -> list[str]:
    """Kernels that a call of `fn` launches and a replay of the graph does not, by name, from the profiler for both.

    What a library launches on a stream of its own runs once, at capture, and is in no graph; no CUDA error tells.
    """
    state = clone(calls.state())

    def call():
        with calls.on_stream(), calls.around():
            fn(*calls.inputs)

    def replay():
        with calls.on_stream():
            captured.replay()

    launched, replayed = _kernels(calls, call), _kernels(calls, replay)
    copy_into(calls.state(), state)
    if not launched:
        raise RuntimeError("the profiler saw no kernel of an eager call: graph and call cannot be compared")
    return sorted((launched - replayed).elements())


def _kernels(calls, run) -> Counter:
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    calls.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        calls.synchronize()
    events = profiler.profiler.kineto_results.events()
    names = (e.name() for e in events if e.device_type() == DeviceType.CUDA and not e.is_user_annotation())
    return Counter(name for name in names if not name.startswith(("Memcpy", "Memset")))


def operators(calls) -> dict[str, str]:
    """torch.library.opcheck of every custom operator that one plain call uses: {operator: "ok" or what is wrong}."""
    import torch

    found = {}

    class Collect(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.namespace not in ("aten", "prims", "prim", "inductor", "profiler"):
                found.setdefault(str(function), (function, clone(args), clone(kwargs or {})))
            return function(*args, **(kwargs or {}))

    with Collect():
        plain_call(calls)
    verdicts = {}
    for name, (function, args, kwargs) in found.items():
        result = torch.library.opcheck(
            function, args, kwargs, test_utils=("test_schema", "test_faketensor"), raise_exception=False
        )
        wrong = [f"{test}: {text}" for test, text in result.items() if text != "SUCCESS"]
        verdicts[name] = "; ".join(str(line)[:300] for line in wrong) or "ok"
    return verdicts
