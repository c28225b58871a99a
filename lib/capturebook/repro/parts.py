"""The fixed parts of an exported script, as text: they run without capturebook."""

import inspect

from ..probes import exceptions, metric

STEP = '''
class Step:
    """Stands for capturebook.subjects.Step: what build returns, field by field."""

    def __init__(self, fn, make_inputs, **fields):
        names = "state advance around compiled reference check cost twin factors drive close"
        self.__dict__.update(dict.fromkeys(names.split()), tolerance=None, kernels={}, pinned={})
        self.__dict__.update(fields, fn=fn, make_inputs=make_inputs)


for name in ("capturebook", "capturebook.subjects", "capturebook.subjects.step"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].Step = Step
'''

HELPERS = '''
def options():
    """What build takes: `tuning` only if it names it."""
    return {**OPTIONS, **({"tuning": TUNING} if "tuning" in inspect.signature(BUILD).parameters else {})}


def as_step(value):
    """A (callable, example inputs) pair becomes a step whose floating-point inputs vary by seed."""
    if not isinstance(value, tuple):
        if isinstance(value.fn, torch.nn.Module) and value.state is None:
            value.state = lambda: dict(value.fn.named_buffers())
        return value
    fn, examples = value

    def make_inputs(seed):
        draw, made = torch.Generator().manual_seed(seed), []
        for x in examples:
            if isinstance(x, torch.Tensor):
                example, x = x.detach(), x.detach().clone()
                if x.is_floating_point() and seed:
                    spread = example.float().std().item() if x.numel() > 1 else 1.0
                    x.copy_(torch.randn(x.shape, generator=draw) * (spread or 1.0) + example.float().mean().item())
            made.append(x)
        return tuple(made)

    none = dict.fromkeys(("state", "advance", "around", "compiled", "reference", "check", "twin"))
    state = (lambda: dict(fn.named_buffers())) if isinstance(fn, torch.nn.Module) else None
    return types.SimpleNamespace(**{**none, "state": state}, fn=fn, make_inputs=make_inputs, tolerance=None)


def clone(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {k: clone(v) for k, v in value.items()}
    return type(value)(clone(v) for v in value) if isinstance(value, (tuple, list)) else value


def tensors(value, name="out"):
    """The tensors of an output by name."""
    if isinstance(value, torch.Tensor):
        return {name: value}
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (tuple, list)) else ()
    return {path: t for key, v in pairs for path, t in tensors(v, f"{name}.{key}").items()}


def refill(mine, new):
    """Write another seed's values into inputs, where they are."""
    if isinstance(mine, torch.Tensor):
        mine.copy_(new)
    elif isinstance(mine, dict):
        for key in mine:
            refill(mine[key], new[key])
    elif isinstance(mine, (tuple, list)):
        for one, other in zip(mine, new):
            refill(one, other)


class Calls:
    """Inputs that keep their addresses, state that is restored before each call, and one running counter."""

    def __init__(self, step, cuda):
        self.step, self.cuda, self.counter, self.wrong = step, cuda, 0, ""
        self.device = "cuda" if cuda else "cpu"
        self.stream = torch.cuda.Stream() if cuda else None
        self.inputs = step.make_inputs(SEED)
        self.first = clone(self.state())

    def state(self):
        return dict(self.step.state()) if self.step.state else {}

    def restore(self, state):
        for name, tensor in self.state().items():
            if name in state and tensor.shape == state[name].shape:
                tensor.copy_(state[name])

    def around(self):
        return self.step.around() if self.step.around else torch.no_grad()

    def on_stream(self, stream=None):
        return torch.cuda.stream(stream or self.stream) if self.cuda else contextlib.nullcontext()

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def begin(self):
        """Before every call, the captured one too: state as at first, then the caller's host work."""
        self.restore(self.first)
        if self.step.advance:
            self.step.advance(self.counter)

    def call(self, fn, stream=None):
        with self.on_stream(stream), self.around():
            return fn(*self.inputs)

    def replay(self, graph, out):
        with self.on_stream():
            graph.replay()
        return out

    def one(self, name, run, before=lambda: None):
        """One call or replay with another seed's values, in place."""
        with torch.no_grad():
            refill(self.inputs, self.step.make_inputs(SEED + self.counter))
        self.begin()
        inputs, state = clone(self.inputs), clone(self.state())
        before()
        self.synchronize()
        out = run()
        self.synchronize()
        self.counter += 1
        if not self.wrong:
            self.wrong = difference(self, inputs, state, clone(out)) and name
'''

TEXT_OF = inspect.getsource(exceptions.text_of)

PIN = '''
def pin():
    """Leave every autotuner the one configuration that was recorded."""
    import triton
    from triton.runtime.autotuner import Autotuner

    launch = ("num_warps", "num_stages", "num_ctas", "maxnreg")
    for tuner in [t for t in gc.get_objects() if issubclass(type(t), Autotuner)]:
        config = PINNED.get(tuner.base_fn.__name__)
        if config and len(tuner.configs) > 1:
            meta = {k: v for k, v in config.items() if k not in launch}
            given = {k: v for k, v in config.items() if k in launch and v is not None}
            tuner.configs = [triton.Config(meta, **given)]
            tuner.cache.clear()
'''

NOT_COMPARED = '''
def difference(calls, inputs, state, got):
    """Nothing is compared: what was recorded is an error."""
    return ""
'''

_METRIC = (metric.relative_error, metric.integer_error, metric.is_whole, metric.default_tolerance, metric.same_bits)
"""The very functions by which the recorded comparison was made."""

COMPARE = '''
def difference(calls, inputs, state, got):
    """What differs from the reference (a plain call, where there is none) after a call, or nothing."""
    step, after, inputs_after = calls.step, clone(calls.state()), clone(calls.inputs)
    declared = {t.untyped_storage().data_ptr() for t in calls.state().values()}
    found = []
    for number, (live, was, now) in enumerate(zip(calls.inputs, inputs, inputs_after)):
        if isinstance(live, torch.Tensor) and live.untyped_storage().data_ptr() not in declared:
            found += [f"input{number} changed"] if not same_bits(was, now) else []
    with torch.no_grad():
        if step.check is not None:
            found += [] if step.check(inputs, got) else ["check"]
        else:
            calls.restore(state)
            plain = step.fn if step.reference is None or step.state else None
            want = step.reference(*clone(inputs)) if step.reference else None
            calls.restore(state)
            ran = plain(*clone(inputs)) if plain else None
            calls.synchronize()  # a copy into pinned memory goes on when the call has returned
            wanted = tensors(ran if want is None else want)
            allowed = step.tolerance
            for number, ((name, right), mine) in enumerate(zip(wanted.items(), tensors(got).values())):
                limit = list(allowed.values()) if isinstance(allowed, dict) else allowed
                limit = limit[number] if isinstance(limit, (list, tuple)) else limit
                found += [name] if far(mine, right, limit) else []
            if step.state:
                limit = allowed if isinstance(allowed, float) else None
                found += [f"state.{n}" for n, right in calls.state().items() if far(after[n], right, limit)]
    calls.restore(after)
    return ", ".join(found)


def far(got, want, tolerance):
    """Whether `got` is off by more than the tolerance, None being what its dtype allows."""
    limit = default_tolerance(got.dtype) if tolerance is None else tolerance
    off = relative_error(got, want, exact=tolerance is None)
    return off is not None and not off <= limit
''' + "".join(f"\n\n{inspect.getsource(function)}" for function in _METRIC)

POISON = '''
def poison(calls, out):
    """NaN where a correct step does not look: its outputs before a replay, and memory that is free."""
    kept = {t.untyped_storage().data_ptr() for t in [*tensors(calls.inputs).values(), *calls.state().values()]}
    for tensor in tensors(out).values():
        if tensor.is_floating_point() and tensor.untyped_storage().data_ptr() not in kept:
            tensor.fill_(float("nan"))
    gc.collect()
    segments = [s for s in torch.cuda.memory_snapshot() if tuple(s.get("segment_pool_id", (0, 0))) == (0, 0)]
    free = []
    for segment in segments:
        small = segment.get("segment_type") == "small"  # whose pool serves no request above 1 MiB
        for size in (b["size"] for b in segment["blocks"] if b["state"] == "inactive"):
            whole, rest = divmod(size, 1 << 20) if small else (0, size)
            free += [1 << 20] * whole + ([rest] if rest else [])
    held = [torch.empty(size, dtype=torch.uint8, device="cuda").fill_(255) for size in free]
    held += [torch.full((1 << n,), float("nan"), pin_memory=True) for n in range(7, 21)]
    torch.cuda.synchronize()
'''

DRIVE = '''
class Handle:
    """What the step's own protocol, drive(h), is given."""

    def __init__(self, calls, fn):
        self.calls, self.fn, self.stream, self.seed = calls, fn, calls.stream, SEED
        self.arm = types.SimpleNamespace(**ARM)
        self.graph, self.replays, self.checks, self.wrong, self.prepare = None, 0, 0, "", []

    def around(self):
        return self.calls.step.around() if self.calls.step.around else contextlib.nullcontext()

    @contextlib.contextmanager
    def phase(self, name):
        with self.around():
            yield

    @contextlib.contextmanager
    def capture(self, pool=None, graph=None, stream=None, capture_error_mode=None):
        graph = torch.cuda.CUDAGraph() if graph is None else graph
        for function in self.prepare:
            function(graph)
        torch.cuda.synchronize()
        mode = capture_error_mode or self.arm.capture
        with torch.cuda.graph(graph, pool=pool, stream=stream or self.stream, capture_error_mode=mode):
            with self.around():
                yield graph
            time.sleep(HOLD)
        self.graph = graph

    def before_capture(self, graph):
        if isinstance(graph, torch.cuda.CUDAGraph):
            torch.cuda.synchronize()
            self.graph = graph
        else:
            self.prepare.append(graph)

    def replay(self):
        torch.cuda.synchronize()
        poison(self.calls, None)
        self.replays += 1
        self.graph.replay()

    def check(self, got, want):
        self.checks += 1
        as_tensor = lambda x: torch.as_tensor(x) if isinstance(x, (bool, int, float)) else x
        got, want = tensors(clone(as_tensor(got))), tensors(as_tensor(want))
        self.calls.synchronize()
        allowed = self.calls.step.tolerance
        bad = False
        for number, (mine, right) in enumerate(zip(got.values(), want.values())):
            limit = list(allowed.values()) if isinstance(allowed, dict) else allowed
            bad |= far(mine, right, limit[number] if isinstance(limit, (list, tuple)) else limit)
        if bad and not self.wrong:
            self.wrong = f"replay {self.replays}" if self.graph else f"warm-up {self.checks}"
        return not bad
'''

MAIN = '''
def main():
    """Reproduce, say what showed, and compare it with what was recorded."""
    shown = {"status": "pass"}
    try:
        wrong = reproduce()
        if wrong:
            shown = {"status": "wrong", "call": wrong}
    except BaseException as error:
        traceback.print_exc()
        root, seen = error, set()
        while root is not None and id(root) not in seen:  # what happened first is the innermost exception
            seen.add(id(root))
            last, root = root, root.__cause__ if root.__cause__ is not None else root.__context__
        shown = {"status": "fail", "type": type(last).__name__, "text": text_of(last)[:4000]}
    sys.stderr.flush()
    print("shown", json.dumps(shown))
    name = EXPECTED.get("text") or EXPECTED.get("call") or ""
    same = shown["status"] == EXPECTED["status"] and name in (shown.get("text") or shown.get("call") or "")
    print("reproduced" if same else f"not reproduced; recorded: {EXPECTED}")
    sys.stdout.flush()
    os._exit(0 if same else 1)  # leaving a broken CUDA context by the front door can hang


if __name__ == "__main__":
    main()
'''
