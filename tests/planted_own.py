"""Steps with Triton kernels of their own, for the build check of a user's step. They compile; nothing is launched."""

import torch
import triton
import triton.language as tl

from capturebook.subjects import Step


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


def _only_large_ones_on_sm_120(configs, named, **meta):
    roomy = torch.cuda.get_device_capability() >= (12, 0)
    return [c for c in configs if roomy or c.kwargs["BLOCK"] < 256]


def _mode_one(named):
    named["mode"] = 1


@triton.autotune(
    [triton.Config({"BLOCK": block}, pre_hook=_mode_one) for block in (64, 128, 256)],
    key=["n"],
    prune_configs_by={"early_config_prune": _only_large_ones_on_sm_120},
)
@triton.heuristics({"HALF": lambda args: args["BLOCK"] // 2})
@triton.jit
def scale_tuned(x, out, n, mode, BLOCK: tl.constexpr, HALF: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * HALF + mode, mask=at < n)


def draw(seed: int) -> tuple:
    return (torch.randn(4096, generator=torch.Generator().manual_seed(seed)),)


def scaled(x, factor=2.0):
    out = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), factor, BLOCK=1024)
    return out


def shifted(offset: int = 0) -> Step:
    def make_inputs(seed):
        return (torch.zeros(4096 + offset, dtype=torch.bfloat16)[offset:],)

    def fn(x):
        out = torch.empty_like(x)
        scale[(4,)](x, out, x.numel(), 2.0, BLOCK=1024, num_warps=8)
        return out

    return Step(fn=fn, make_inputs=make_inputs)


def launches_thrice() -> Step:
    return Step(fn=lambda x: (scaled(x), scaled(x, 3.0), scaled(x[1:])), make_inputs=draw)


def warms_up() -> Step:
    def fn(x):
        scale.warmup(torch.float32, torch.float32, 4096, 2.0, grid=(8,), BLOCK=512)
        return scaled(x)

    return Step(fn=fn, make_inputs=draw)


def _tuned(x):
    out = torch.empty_like(x)
    scale_tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), 7)
    return out


def tuned() -> Step:
    return Step(fn=_tuned, make_inputs=draw, pinned={"scale_tuned": {"BLOCK": 128}})


def pinned_elsewhere() -> Step:
    return Step(fn=_tuned, make_inputs=draw, pinned={"scale_tuned": {"BLOCK": 512, "num_warps": 2}})


def ops_between() -> Step:
    def fn(x):
        y = torch.nn.functional.silu(scaled(x)) @ torch.ones(x.shape[0], x.shape[0])
        out = torch.empty_like(x)
        add[(4,)](x, y, out, x.numel(), BLOCK=1024)
        return out

    return Step(fn=fn, make_inputs=draw)


def says_cuda() -> Step:
    weight = torch.ones(4096, device="cuda")
    return Step(fn=lambda x: scaled(x * weight), make_inputs=lambda seed: (draw(seed)[0].pin_memory().cuda(),))


def branches_on_a_result() -> Step:
    def fn(x):
        y = scaled(x).abs()
        return scaled(y) if y.sum() > 0 else y

    return Step(fn=fn, make_inputs=draw)


def reads_then_launches() -> Step:
    def fn(x):
        y = scaled(x)
        if y[0].item() != y[0].item():
            return scaled(y[1:])
        return y

    return Step(fn=fn, make_inputs=draw)


def catches(error: str) -> Step:
    """Guards a read of a result against an error of its own, puts things right behind it, and goes on."""
    kinds = {"exception": Exception, "all": BaseException}

    def fn(x):
        y = scaled(x)
        try:
            try:
                n = int(y[0].item())  # caught
            finally:
                scaled(x[:7])
        except kinds[error]:
            n = 3
        return scaled(scaled(x[n:])[: int(y[1].item())])

    return Step(fn=fn, make_inputs=draw)


def raises_another() -> Step:
    def fn(x):
        try:
            return scaled(x)[0].item()  # told otherwise
        except BaseException as error:
            raise KeyError("no number") from error

    return Step(fn=fn, make_inputs=draw)


def reads_while_built() -> Step:
    try:
        n = scaled(draw(0)[0])[:1].tolist()[0]  # of a warm-up
    except BaseException:
        n = 1.0
    return Step(fn=lambda x: scaled(x) * n, make_inputs=draw)


def reads_when_closed() -> Step:
    kept = []

    def fn(x):
        kept.append(scaled(x))
        return kept[-1]

    return Step(fn=fn, make_inputs=draw, close=lambda: kept.pop().tolist())


def lists_a_result() -> Step:
    return Step(fn=lambda x: [scaled(x[:n]) for n in scaled(x)[:2].tolist()], make_inputs=draw)


def result_decides_a_shape() -> Step:
    def fn(x):
        y = scaled(x)
        return scaled(y[y > 0])

    return Step(fn=fn, make_inputs=draw)


def branches_on_its_own_buffer() -> Step:
    out, weight = torch.ones(4096), torch.ones(4096)

    def fn(x):
        scale[(4,)](x, out, x.numel(), 2.0, BLOCK=1024)
        return scaled(x) if (out * weight).sum().item() > 0 else x

    return Step(fn=fn, make_inputs=draw)


def branches_on_an_input() -> Step:
    def fn(x):
        y = scaled(x)
        return y if x.abs().sum().item() > 0 else scaled(y[1:])

    return Step(fn=fn, make_inputs=draw)


@torch.library.triton_op("planted_own::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(scale)[(4,)](x, out, x.numel(), 3.0, BLOCK=1024)
    return out


def launches_in_an_operator() -> Step:
    return Step(fn=torch.compile(lambda x: triple(x) + 1), make_inputs=draw)


def branches_on_an_operators_result() -> Step:
    return Step(fn=lambda x: x if triple(x).any() else scaled(x), make_inputs=draw)


@triton.jit
def copy_block(source, target, BLOCK: tl.constexpr):
    target.store([0], source.load([0]))


def takes_descriptors() -> Step:
    from triton.tools.tensor_descriptor import TensorDescriptor

    def fn(x):
        out = torch.empty_like(x)
        described = [TensorDescriptor.from_tensor(t, [512]) for t in (x, out)]
        copy_block[(8,)](*described, BLOCK=512)
        return out

    return Step(fn=fn, make_inputs=draw)


@torch.library.custom_op("planted_own::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    """As an operator whose CPU implementation has no kernel."""
    return x * 2


@torch.library.custom_op("planted_own::on_cuda", mutates_args=(), device_types="cuda")
def on_cuda(x: torch.Tensor) -> torch.Tensor:
    return scaled(x)


def needs_cuda() -> Step:
    return Step(fn=lambda x: on_cuda(x), make_inputs=draw)


def hides_launches() -> Step:
    return Step(fn=lambda x: scaled(double(x)), make_inputs=draw, kernels={"scale": scale, "add": add})


def raises() -> Step:
    def fn(x):
        raise ValueError("not today\nnor tomorrow")

    return Step(fn=fn, make_inputs=draw)


def takes_everything(**sizes) -> Step:
    return Step(fn=scaled, make_inputs=draw)
