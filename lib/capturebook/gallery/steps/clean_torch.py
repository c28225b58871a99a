"""Sound steps of torch ops alone: modules, caches in place, lengths on the device, odd outputs."""

import torch

from capturebook.gallery.inputs import DEVICE, draw, matrix, vector, weight
from capturebook.subjects import Step


def cache_in_place() -> Step:
    """A KV cache of full size, written in place at a device position, with a length that masks the rest."""
    keys, values = torch.zeros(128, 64, device=DEVICE), torch.zeros(128, 64, device=DEVICE)
    length = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    at = torch.arange(128, device=DEVICE)

    def attend(q, k, v, keys, values, length):
        keys, values = keys.index_copy(0, length, k[None]), values.index_copy(0, length, v[None])
        scores = (keys @ q / 8).masked_fill(at > length, -torch.inf)
        return torch.softmax(scores, 0) @ values, keys, values

    def fn(q, k, v):
        out, new_keys, new_values = attend(q, k, v, keys, values, length)
        keys.copy_(new_keys)
        values.copy_(new_values)
        return out

    def reference(q, k, v):
        return attend(q.double(), k.double(), v.double(), keys.double(), values.double(), length)[0]

    return Step(
        fn=fn,
        make_inputs=lambda seed: tuple(draw(seed * 3 + i, 64) for i in range(3)),
        reference=reference,
        state=lambda: {"keys": keys, "values": values, "length": length},
        advance=lambda i: length.fill_(i),
    )


def block() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.LayerNorm(256), torch.nn.Linear(256, 512), torch.nn.SiLU(), torch.nn.Linear(512, 256)
    ).to(DEVICE)


def module() -> Step:
    """An nn.Module with parameters, as it comes."""
    model = block()
    exact = block().double()
    return Step(fn=model, make_inputs=matrix, reference=lambda x: exact(x.double()))


def dict_outputs() -> Step:
    """Outputs in a dictionary, one of them a view of another."""

    def fn(x):
        y = torch.softmax(x, -1)
        return {"probabilities": y, "first": y[:1], "top": y.max(-1).values}

    def reference(x):
        y = torch.softmax(x.double(), -1)
        return {"probabilities": y, "first": y[:1], "top": y.max(-1).values}

    return Step(fn=fn, make_inputs=matrix, reference=reference, tolerance=1e-5)


def tuple_of_dtypes() -> Step:
    """A tuple of a float, an integer and a boolean tensor."""

    def fn(x):
        return torch.relu(x), x.argmax(-1), x > 0

    return Step(fn=fn, make_inputs=matrix, reference=lambda x: fn(x.double()), tolerance=1e-6)


def attention() -> Step:
    """scaled_dot_product_attention and a projection, in bfloat16."""
    w = weight().bfloat16()

    def fn(x):
        q = x.bfloat16().view(1, 4, 16, 64)
        out = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        return out.reshape(16, 256) @ w

    def reference(x):
        q = x.bfloat16().double().view(1, 4, 16, 64)
        scores = torch.softmax(q @ q.transpose(-1, -2) / 8, -1)
        return (scores @ q).reshape(16, 256) @ w.double()

    # bf16 rounds inputs, probabilities and product: a few times 2^-8 relative to the largest output.
    return Step(fn=fn, make_inputs=matrix, reference=reference, tolerance=2e-2)


def lengths_on_device() -> Step:
    """Rows have lengths that vary with the seed, in a device tensor; nothing on the host depends on them."""
    at = torch.arange(256, device=DEVICE)

    def make_inputs(seed: int) -> tuple:
        lengths = torch.randint(1, 257, (16,), generator=torch.Generator().manual_seed(seed)).to(DEVICE)
        return (draw(seed, 16, 256), lengths)

    def fn(x, lengths):
        kept = torch.where(at < lengths[:, None], x, 0.0)
        return kept.sum(-1) / lengths

    return Step(
        fn=fn,
        make_inputs=make_inputs,
        reference=lambda x, lengths: fn(x.double(), lengths),
        tolerance=1e-4,
    )


def residual_in_place() -> Step:
    """A residual stream that the step adds to in place; it is declared as state."""
    residual = torch.zeros(4096, device=DEVICE)

    def make_inputs(seed: int) -> tuple:
        return (draw(seed, 4096),)

    def fn(x):
        residual.add_(x)
        return residual * 2

    return Step(
        fn=fn,
        make_inputs=make_inputs,
        reference=lambda x: (residual.double() + x.double()) * 2,
        state=lambda: {"residual": residual},
        tolerance=1e-5,
    )


def ring_of_buffers() -> Step:
    """Two buffers that swap roles by a device index, never by name."""
    ring = torch.zeros(2, 4096, device=DEVICE)
    turn = torch.zeros(1, dtype=torch.int64, device=DEVICE)

    def fn(x):
        previous = ring.index_select(0, 1 - turn)[0]
        out = x + previous
        ring.index_copy_(0, turn, x[None])
        return out

    return Step(
        fn=fn,
        make_inputs=vector,
        reference=lambda x: x.double() + ring.double().index_select(0, 1 - turn)[0],
        state=lambda: {"ring": ring, "turn": turn},
        advance=lambda i: turn.fill_(i % 2),
        tolerance=1e-5,
    )


def not_finite() -> Step:
    """Masked scores are -inf by design, and so are the outputs of rows that are masked out."""

    def fn(x):
        return torch.where(x > 1, -torch.inf, x) * 1

    return Step(fn=fn, make_inputs=matrix, reference=lambda x: fn(x.double()), tolerance=1e-6)


def weights_by_copy() -> Step:
    """Weights are updated between replays, by copy into the tensor that the graph knows."""
    w = torch.zeros(4096, device=DEVICE)
    return Step(
        fn=lambda x: x * w,
        make_inputs=vector,
        reference=lambda x: x.double() * w,
        state=lambda: {"w": w},
        advance=lambda i: w.copy_(torch.full((4096,), float(i + 1), device=DEVICE)),
        tolerance=1e-6,
    )


def plain_callable():
    """A function and example inputs, without any Step."""
    return (lambda x: torch.sin(x) * 2), (torch.ones(4096, device=DEVICE),)
