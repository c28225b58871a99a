"""Steps with known faults, for the tests of the driver on a CPU. Each is a build function."""

import torch

from capturebook.subjects import Step


def draw(seed: int) -> tuple:
    return (torch.randn(32, generator=torch.Generator().manual_seed(seed)),)


def right() -> Step:
    return Step(fn=lambda x: x * 2, make_inputs=draw, reference=lambda x: x.double() * 2)


def off_by_a_percent() -> Step:
    return Step(fn=lambda x: x * 2.02, make_inputs=draw, reference=lambda x: x.double() * 2)


def nan_once() -> Step:
    return Step(fn=lambda x: torch.where(x > 1.0, torch.nan, x), make_inputs=draw, reference=lambda x: x.double())


def counts_in_state() -> Step:
    """A declared state that grows by one a call: restored before each call, so each call sees the same."""
    total = torch.zeros(1)

    def fn(x):
        total.add_(1)
        return x + total

    return Step(fn=fn, make_inputs=draw, state=lambda: {"total": total}, reference=lambda x: x.double() + total + 1)


def hidden_state() -> Step:
    """The same, undeclared: right at the first call only."""
    total = torch.zeros(1)

    def fn(x):
        total.add_(1)
        return x + total

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x.double() + 1)


def changes_its_input() -> Step:
    def fn(x):
        result = x * 2
        x.zero_()
        return result

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x.double() * 2)


def cheats_by_shape() -> Step:
    """Returns one element of the right value, which a broadcasting comparison would accept."""
    return Step(fn=lambda x: x[:1] * 0 + 1, make_inputs=draw, reference=lambda x: torch.ones(32))


def shape_varies() -> Step:
    return Step(fn=lambda x: x, make_inputs=lambda seed: (torch.zeros(4 + seed),))


def python_value_varies() -> Step:
    return Step(fn=lambda x, n: x * n, make_inputs=lambda seed: (torch.zeros(4), seed))


def inputs_are_a_list() -> Step:
    return Step(fn=lambda x: x, make_inputs=lambda seed: [torch.zeros(4)])


def own_check() -> Step:
    return Step(fn=lambda x: x * 3, make_inputs=draw, check=lambda inputs, out: bool((out == inputs[0] * 2).all()))


def plain_callable():
    return (lambda x: torch.sin(x)), (torch.ones(8),)


def not_a_step():
    return 42


def untraceable() -> Step:
    """One foreign call: a graph break under torch.compile, an error under fullgraph."""
    import ctypes

    foreign = ctypes.CDLL(None).getpid

    def fn(x):
        y = x * 2
        foreign()
        return y + 1

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x.double() * 2 + 1)


def takes_options(width: int = 4, batch: int = 1) -> Step:
    def make_inputs(seed):
        return (torch.full((batch, width), float(seed)),)

    return Step(
        fn=lambda x: x + x.shape[0] * x.shape[1], make_inputs=make_inputs, reference=lambda x: x + batch * width
    )


def fails_when_fused(fused: bool = False) -> Step:
    def fn(x):
        if fused:
            raise RuntimeError("the fused path does not work")
        return x * 2

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x.double() * 2)


def random_each_call() -> Step:
    return Step(fn=lambda x: x + torch.rand(32), make_inputs=draw, reference=lambda x: x.double())


@torch.library.custom_op("planted::add_one", mutates_args=())
def add_one(x: torch.Tensor) -> torch.Tensor:
    """Writes into its argument and does not say so."""
    x.add_(1)
    return x.clone()


@add_one.register_fake
def _(x):
    return torch.empty_like(x)


def hides_a_mutation() -> Step:
    def fn(x):
        y = x * 1
        return add_one(y) + y

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x.double() * 2)


@torch.library.custom_op("planted::first_half", mutates_args=())
def first_half(x: torch.Tensor) -> torch.Tensor:
    return x.flatten()[: x.numel() // 2].clone()


@first_half.register_fake
def _(x):
    return torch.empty_like(x.flatten())


def promises_another_size() -> Step:
    """The fake promises twice as many values as come, so compiled code views what is not there."""

    def fn(x):
        y = first_half(x)
        return y.view(y.shape[0] // 2, 2)

    def reference(x):
        return x.double().flatten()[: x.numel() // 2].view(-1, 2)

    return Step(fn=fn, make_inputs=draw, reference=reference)


def fails_by_itself() -> Step:
    return Step(fn=lambda x: x @ torch.ones(7), make_inputs=draw)


def one_output_unjudged() -> Step:
    return Step(fn=lambda x: (x * 2, x * 99), make_inputs=draw, reference=lambda x: (x.double() * 2,))
