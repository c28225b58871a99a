"""What the rules need beyond a comparison: whose a wrong result is, and what compiles again. In the probe's process."""

from collections import Counter

from ..subjects.step import outputs_by_name
from . import inputs, rng
from .compare import clone, compare
from .exceptions import text_of
from .hidden import Hidden


def deterministic(calls) -> dict[str, bool]:
    """{"deterministic": two plain calls from the same state and inputs agree within the step's tolerance,
    "random": they do so only from the same state of the random number generators}.

    What the step keeps without declaring it is put back too: such a step is not random, but has a state of its own.
    """
    start, kept = rng.snapshot(calls.cuda), Hidden(calls.step.fn)
    first = plain_call(calls)
    kept.restore()
    second = plain_call(calls)
    kept.restore()
    rng.restore(start)
    again = plain_call(calls)
    kept.restore()
    same = _agree(calls, first, second)
    return {"deterministic": same, "random": not same and _agree(calls, first, again)}


def _agree(calls, one: dict, other: dict) -> bool:
    return all(check.ok for check in compare("plain", one, other, calls.step.tolerance))


def plain_call(calls) -> dict:
    """Outputs of one uncompiled, uncaptured call on copies of the inputs, with the state put back afterwards."""
    state = calls.state.snapshot()
    with calls.on_stream(), calls.around():
        outputs = clone(outputs_by_name(calls.step.fn(*inputs.copies(calls.inputs))))
    calls.synchronize()
    calls.state.put(state)
    return outputs


def kernels_missing(calls, fn, captured, copies: int | None = None) -> list[str]:
    """Kernels that a call of `fn` launches and a replay of the graph does not, by name, from the profiler for both.

    What a library launches on a stream of its own runs once, at capture, and is in no graph; no CUDA error tells.
    The call is the captured one over again, `advance` included, so that a branch that was baked is no missing kernel;
    and twice, since the first may launch what only a change on the host brings (a table made anew): that is baked too.
    copies: how many copies the graph holds, None where that is not known; then copies are not compared.
    """
    state = calls.state.snapshot()
    replayed = _activities(calls, lambda: calls.replayed(captured))
    if calls.step.advance and not calls.step.drive:
        calls.step.advance(int(calls.arm.warmup[4:]) if calls.arm.warmup.startswith("warm") else 0)
    launched = _activities(calls, lambda: calls.call(fn)) & _activities(calls, lambda: calls.call(fn))
    calls.state.put(state)
    if not launched:
        raise RuntimeError("the profiler saw nothing of an eager call: graph and call cannot be compared")
    made = sum(number for name, number in launched.items() if name.startswith("Memcpy"))
    missing = [name for name in (launched - replayed).elements() if not name.startswith(("Memcpy", "Memset"))]
    return sorted(missing) + ["Memcpy"] * (max(0, made - copies) if copies is not None else 0)


def _activities(calls, run) -> Counter:
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    calls.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        calls.synchronize()
    events = profiler.profiler.kineto_results.events()
    names = (e.name() for e in events if e.device_type() == DeviceType.CUDA and not e.is_user_annotation())
    return Counter(names)


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
        if not wrong and (said := _other_strides(function, args, kwargs)):
            wrong = [f"test_faketensor: {said}"]
        verdicts[name] = "; ".join(str(line)[:300] for line in wrong) or "ok"
    return verdicts


def _other_strides(function, args: tuple, kwargs: dict) -> str:
    """Where an operator's fake promises other strides than its outputs have, which opcheck of torch 2.11 lets pass."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_leaves, tree_map_only

    mode = FakeTensorMode()
    faked = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
    with mode:
        promised = tree_leaves(function(*faked[0], **faked[1]))
    for said, made in zip(promised, tree_leaves(function(*clone(args), **clone(kwargs)))):
        if isinstance(made, torch.Tensor):
            pairs = [(a, b) for a, b, size in zip(said.stride(), made.stride(), made.shape) if size > 1]
            if any(a != b for a, b in pairs):
                return f"strides {tuple(said.stride())} are promised, {tuple(made.stride())} returned"
    return ""


_STANCE = "fail_on_recompile"


def recompiles(calls, fn) -> str:
    """The guard that fails when the compiled step is called once more at the same shapes; "" if it is not recompiled.

    A capture that goes through proves nothing about the next one: a counter in a guard compiles anew each time.
    """
    import torch

    state = calls.state.snapshot()
    calls.renew()
    try:
        with torch.compiler.set_stance(_STANCE):
            calls.call(fn)
    except RuntimeError as error:
        text = text_of(error)
        if f"stance is '{_STANCE}'" not in text:
            raise
        guards = [line.strip(" -") for line in text.split("\n")[1:] if line.strip().startswith("- ")]
        return "; ".join(guards)[:500] or text.partition("\n")[0]
    finally:
        calls.synchronize()
        calls.state.put(state)
    return ""
