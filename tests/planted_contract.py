"""Steps for each promise of the Step contract, right ones and broken ones, for a CPU. Each is a build function."""

import ctypes
import os
import threading
import time

import torch

from capturebook.subjects import Step


def draw(seed: int) -> tuple:
    return (torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)),)


class _Cache(torch.nn.Module):
    """Adds its input to a buffer in place, as a KV cache does, and returns a dict."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8))
        self.register_buffer("total", torch.zeros(4, 8))

    def forward(self, x):
        self.total.add_(x)
        return {"y": x * self.weight, "sums": (self.total.sum(0), self.total * 1)}


def module_with_a_cache() -> Step:
    return Step(fn=_Cache(), make_inputs=draw)


def module_and_inputs():
    return torch.nn.Linear(8, 3), (torch.randn(8, 4).T,)


def tuple_of_one() -> Step:
    return Step(fn=lambda x: (x * 2,), make_inputs=draw, reference=lambda x: x.double() * 2)


def writes_its_out_argument() -> Step:
    def fn(x, out):
        torch.mul(x, 2, out=out)
        return out

    return Step(fn=fn, make_inputs=lambda s: (*draw(s), torch.zeros(4, 8)), reference=lambda x, out: x.double() * 2)


def odd_inputs() -> Step:
    """A scalar tensor, an expanded one, a transposed one, a list of tensors, None, and a leaf with a gradient."""

    def make_inputs(seed):
        (x,) = draw(seed)
        return (x[0, 0].clone(), x[0].expand(4, 8), x.T, [x, {"k": x * 2}], None, x.clone().requires_grad_())

    def fn(scalar, row, turned, nested, nothing, leaf):
        assert leaf.requires_grad
        return scalar + row + turned.T + nested[0] + nested[1]["k"] + leaf

    return Step(fn=fn, make_inputs=make_inputs, reference=lambda s, r, t, n, _, g: s + r + t.T + 3 * n[0] + g.detach())


def trains() -> Step:
    def fn(x):
        return torch.autograd.grad((x * x).sum(), x)[0]

    return Step(
        fn=fn,
        make_inputs=lambda seed: (draw(seed)[0].requires_grad_(),),
        around=torch.enable_grad,
        reference=lambda x: 2 * x.detach().double(),
    )


def grows_its_state() -> Step:
    """A cache that is concatenated anew by every call: right when called, whatever came before."""
    now = {"cache": torch.zeros(1, 8)}

    def fn(x):
        now["cache"] = torch.cat([now["cache"], x[:1]])
        return now["cache"].sum(0)

    return Step(
        fn=fn,
        make_inputs=draw,
        state=lambda: dict(now),
        reference=lambda x: now["cache"].double().sum(0) + x[0].double(),
    )


def random_numbers() -> Step:
    """No reference: compared with a plain call that draws the same numbers."""
    return Step(fn=lambda x: x + torch.rand(4, 8), make_inputs=draw)


def random_and_checked() -> Step:
    def check(inputs, output):
        return bool(((output - inputs[0]) >= 0).all() and ((output - inputs[0]) < 1.001).all())

    return Step(fn=lambda x: x + torch.rand(4, 8), make_inputs=draw, check=check)


def not_deterministic() -> Step:
    return Step(fn=lambda x: x + (time.perf_counter_ns() % 1000), make_inputs=draw)


def dtype_varies() -> Step:
    return Step(fn=lambda x: x, make_inputs=lambda seed: (draw(seed)[0].to([torch.float32, torch.float64][seed % 2]),))


def strides_vary() -> Step:
    def make_inputs(seed):
        (x,) = draw(seed)
        return (x if seed % 2 == 0 else x.T.contiguous().T,)

    return Step(fn=lambda x: x, make_inputs=make_inputs)


def built_for_a_gpu() -> Step:
    torch.cuda.current_stream()
    return Step(fn=lambda x: x, make_inputs=draw)


def moves_to_a_gpu() -> Step:
    return Step(fn=lambda x: x.cuda() * 2, make_inputs=draw)


def device_varies() -> Step:
    return Step(fn=lambda x: x, make_inputs=lambda seed: (torch.zeros(4, device=["cpu", "meta"][seed % 2]),))


def count_varies() -> Step:
    return Step(fn=lambda *x: x[0], make_inputs=lambda seed: tuple(torch.zeros(4) for _ in range(1 + seed)))


def reference_raises() -> Step:
    def reference(x):
        raise KeyError("table")

    return Step(fn=lambda x: x, make_inputs=draw, reference=reference)


def reference_gives_more() -> Step:
    return Step(fn=lambda x: (x, x), make_inputs=draw, reference=lambda x: (x, x, x))


def tolerance_is_short() -> Step:
    return Step(fn=lambda x: (x, x), make_inputs=draw, reference=lambda x: (x, x), tolerance=[1e-3])


def reference_gives_text() -> Step:
    return Step(fn=lambda x: x, make_inputs=draw, reference=lambda x: "x")


def check_says_why() -> Step:
    return Step(fn=lambda x: x, make_inputs=draw, check=lambda inputs, output: (False, "off by 7"))


def check_says_nothing() -> Step:
    return Step(fn=lambda x: x, make_inputs=draw, check=lambda inputs, output: None)


def state_is_a_list() -> Step:
    return Step(fn=lambda x: x, make_inputs=draw, state=lambda: [torch.zeros(1)])


def returns_a_number() -> Step:
    return Step(fn=lambda x: 3.0, make_inputs=draw)


def has_threads() -> Step:
    """One Python thread and one native one, both waiting."""
    stop = threading.Event()
    threading.Thread(target=stop.wait, name="subject-loader", daemon=True).start()
    libc, handle = ctypes.CDLL(None), ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(handle), None, ctypes.cast(libc.sleep, ctypes.c_void_p), ctypes.c_void_p(60))
    return Step(fn=lambda x: x * 2, make_inputs=draw, reference=lambda x: x * 2, close=stop.set)


def compiled_anew_each_time() -> Step:
    """A word that the caller changes before each call is a guard of the compiled step."""
    now = {"word": ""}

    def advance(i):
        now["word"] = f"call {i}"

    def fn(x):
        return x * len(now["word"])

    return Step(fn=fn, make_inputs=draw, advance=advance, reference=lambda x: x * len(now["word"]))


def build_exits() -> Step:
    raise SystemExit(3)


def build_leaves() -> Step:
    os._exit(4)


def build_kills() -> Step:
    os.kill(os.getpid(), 9)


def build_hangs() -> Step:
    time.sleep(600)


def build_raises() -> Step:
    raise RuntimeError("no weights")


class _Counter:
    def __init__(self):
        self.calls, self.seen = 0, []


def keeps_a_hidden_count() -> Step:
    """Wrong from its second call on, by what it keeps in an attribute, a list, a tensor and a closure cell."""
    kept, total, number = _Counter(), torch.zeros(1), 0

    def fn(x):
        nonlocal number
        number += 1
        kept.calls += 1
        kept.seen.append(number)
        total.add_(1)
        return x + number + kept.calls + len(kept.seen) + total

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x + 4)


def rounds_to_bfloat16() -> Step:
    """No tolerance given: half a unit in the last place of a bfloat16 is no fault, four per cent is one."""
    return Step(
        fn=lambda x, off: (x * off).bfloat16(), make_inputs=lambda s: (*draw(s), 1.004), reference=lambda x, o: x
    )


def is_four_per_cent_off() -> Step:
    return Step(fn=lambda x: (x * 1.04).bfloat16(), make_inputs=draw, reference=lambda x: x)


def state_is_a_copy() -> Step:
    now = {"n": 0}

    def fn(x):
        now["n"] += 1
        return x + now["n"]

    return Step(
        fn=fn, make_inputs=draw, state=lambda: {"n": torch.tensor(now["n"])}, reference=lambda x: x + now["n"] + 1
    )


def changes_nothing() -> Step:
    return Step(fn=lambda x: None, make_inputs=draw)


def gives_nothing_finite() -> Step:
    def fn(x):
        return x * torch.nan, x * torch.inf, x[:0]

    return Step(fn=fn, make_inputs=draw, reference=fn)


def one_output_is_empty() -> Step:
    """The second output is NaN in places, which is what it should be there."""

    def fn(x):
        return x[:0], x.masked_fill(x > 0, torch.nan)

    return Step(fn=fn, make_inputs=draw, reference=fn)


def raises_what_has_no_text():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    raise Mute from ValueError("the cause")


def takes_anything(**options) -> Step:
    return Step(fn=lambda x: x, make_inputs=draw, reference=lambda x: x, factors=("batch",))


def needs_a_width(width: int) -> Step:
    return Step(fn=lambda x: x, make_inputs=lambda seed: (torch.zeros(width),))


def reference_of_another_shape():
    return Step(fn=lambda x: x, make_inputs=lambda seed: (torch.ones(4),), reference=lambda x: x[:2])


def raises_control_characters():
    raise ValueError("\x1b]0;title\x07 red\x1b[31m\x9b2J \r over\nnext line")
