"""Where torch.compile goes, and warming everything but the step for arms that want it cold."""


def compiled(step, arm):
    """The step's function as the arm wants it: torch.compile goes where the step says, else on the whole."""
    import torch

    if arm.compile == "none":
        return step.fn
    backend = {"backend": arm.compile} if arm.compile in ("eager", "aot_eager") else {"mode": arm.compile}

    def compile_(fn):
        return torch.compile(fn, fullgraph=arm.fullgraph, dynamic=arm.dynamic, **backend)

    return step.compiled(compile_) if step.compiled else compile_(step.fn)


def warm_stack(arm, calls) -> None:
    """Warm cuBLAS on the capture's stream and thread, and another compiled function; never the step."""
    import torch

    x = torch.randn(64, 64, device=calls.device)
    other = compiled(_Other(lambda t: torch.nn.functional.silu(t @ t) + t), arm)
    with calls.on_stream(), torch.no_grad():
        torch.mm(x, x)
        torch.mm(x.bfloat16(), x.bfloat16())
        for _ in range(2):
            other(x)
    calls.synchronize()


class _Other:
    """The least that `compiled` needs of a step."""

    compiled = None

    def __init__(self, fn):
        self.fn = fn
