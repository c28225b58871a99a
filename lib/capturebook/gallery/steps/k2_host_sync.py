"""K2: the step waits for the GPU, copies from pageable memory or calls a generator: nothing a graph can hold."""

import contextlib
import ctypes

import torch

from capturebook.gallery.inputs import DEVICE, vector
from capturebook.subjects import Step

HALVES = [0.5, 2.0]


def step(fn, reference, **more) -> Step:
    return Step(fn=fn, make_inputs=vector, reference=reference, **more)


def positives(x):
    return torch.where(x > 0, x, 0.0).double().sum()


def item() -> Step:
    """.item() copies the value to the host and waits for it."""
    return step(lambda x: x / x.abs().max().item(), lambda x: x.double() / x.abs().max())


def item_fixed() -> Step:
    """The maximum stays on the device."""
    return step(lambda x: x / x.abs().max(), lambda x: x.double() / x.abs().max())


def tolist() -> Step:
    """tolist() copies the indices to the host, where Python picks the row."""
    return step(lambda x: x * x[x[:8].argmax().tolist()], lambda x: x.double() * x[:8].max())


def tolist_fixed() -> Step:
    """index_select takes the index where it is; indexing with a tensor of no dimension would fetch it, too."""
    return step(lambda x: x * x.index_select(0, x[:8].argmax()[None]), lambda x: x.double() * x[:8].max())


def nonzero() -> Step:
    """The size of nonzero's result depends on the data, so torch fetches it from the device."""
    return step(lambda x: x[torch.nonzero(x > 0)[:, 0]].sum(), positives)


def mask() -> Step:
    """Boolean indexing is nonzero in disguise: the shape depends on the data."""
    return step(lambda x: x[x > 0].sum(), positives)


def mask_fixed() -> Step:
    """A fixed shape: what the mask drops counts as zero."""
    return step(lambda x: torch.where(x > 0, x, 0.0).sum(), positives)


def nonzero_fixed() -> Step:
    """A fixed shape: what is not selected counts as zero."""
    return step(lambda x: torch.where(x > 0, x, 0.0).sum(), positives)


def list_to_tensor() -> Step:
    """A Python list becomes a pageable host tensor, which is copied to the device."""
    return step(
        lambda x: (x.view(2, -1) * torch.tensor(HALVES, device=x.device)[:, None]).view(-1),
        lambda x: torch.cat([x[:2048].double() * 0.5, x[2048:].double() * 2]),
    )


def list_to_tensor_fixed() -> Step:
    """The tensor is made once, before any capture."""
    factors = torch.tensor(HALVES, device=DEVICE)[:, None]
    return step(
        lambda x: (x.view(2, -1) * factors).view(-1),
        lambda x: torch.cat([x[:2048].double() * 0.5, x[2048:].double() * 2]),
    )


def pageable_copy() -> Step:
    """.to(device) of an ordinary host tensor: a pageable copy waits for the host."""
    bias = torch.arange(4096.0)
    return step(lambda x: x + bias.to(x.device), lambda x: x.double() + bias.to(x.device))


def pageable_copy_fixed() -> Step:
    """The bias lives on the device."""
    bias = torch.arange(4096.0).to(DEVICE)
    return step(lambda x: x + bias, lambda x: x.double() + bias)


def device_synchronize() -> Step:
    """A torch.cuda.synchronize() that was left in from timing the step."""

    def fn(x):
        y = x * 2
        torch.cuda.synchronize()
        return y + 1

    return step(fn, lambda x: x.double() * 2 + 1)


def device_synchronize_fixed() -> Step:
    """The step leaves waiting to its caller."""

    def fn(x):
        y = x * 2
        return y + 1

    return step(fn, lambda x: x.double() * 2 + 1)


def stream_synchronize() -> Step:
    """current_stream().synchronize() waits for a stream that is capturing, and so runs nothing."""

    def fn(x):
        y = x * 2
        torch.cuda.current_stream().synchronize()
        return y + 1

    return step(fn, lambda x: x.double() * 2 + 1)


def swallowed() -> Step:
    """The wait is refused, its error is swallowed, and the capture ends broken without a word about why."""

    def fn(x):
        y = x * 2
        with contextlib.suppress(RuntimeError):
            torch.cuda.current_stream().synchronize()
        return y + 1

    return step(fn, lambda x: x.double() * 2 + 1)


def unchecked() -> Step:
    """A library calls the driver itself and ignores the code that it returns: no hook of torch's sees the wait."""
    driver = ctypes.CDLL("libcuda.so.1")

    def fn(x):
        y = x * 2
        driver.cuCtxSynchronize()
        return y + 1

    return step(fn, lambda x: x.double() * 2 + 1)


def _in_reach(inputs, outputs) -> bool:
    noise = outputs - inputs[0]
    return bool((noise >= -1e-4).all() and (noise <= 1.0001).all() and noise.std() > 0.1)


def reseeds() -> Step:
    """Seeding writes the generator's state from the host; in a capture torch refuses any seed but the present one."""
    now = {}

    def fn(x):
        torch.cuda.manual_seed(now["call"])
        return x + torch.rand_like(x)

    return Step(fn=fn, make_inputs=vector, advance=lambda i: now.update(call=i), check=_in_reach)


def reseeds_fixed() -> Step:
    """Seeded by the caller between replays, not in the step."""
    return Step(
        fn=lambda x: x + torch.rand_like(x),
        make_inputs=vector,
        advance=lambda i: torch.cuda.manual_seed(i),
        check=_in_reach,
    )


def own_generator() -> Step:
    """A generator that the graph does not know of: its offset cannot be advanced in a capture."""
    generator = torch.Generator(DEVICE)
    return Step(
        fn=lambda x: x + torch.rand(x.shape, generator=generator, device=x.device), make_inputs=vector, check=_in_reach
    )


def own_generator_fixed() -> Step:
    """The graph is told of the generator before the capture begins, and draws anew in every replay."""
    generator = torch.Generator(DEVICE)

    def fn(x):
        return x + torch.rand(x.shape, generator=generator, device=x.device)

    def drive(h):
        (x,) = vector(0)
        fn(x)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(generator)
        with h.capture(graph=graph):
            out = fn(x)
        h.replay()
        first = out.clone()
        h.replay()
        h.check((first != out).any(), torch.tensor(True))

    return Step(fn=fn, make_inputs=vector, check=_in_reach, drive=drive)
