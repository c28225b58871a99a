"""From `pkg.mod:build` or `file.py:build` to a Step."""

import importlib
import importlib.util
import inspect
import math
import os
import sys
from numbers import Real
from pathlib import Path

from .. import paths
from ..records import SUBJECT_FACTORS, Arm, Subject
from .step import Step, SubjectError


def find(target: str, folders: list[Path]) -> str:
    """The target with its file made absolute; a module is returned as it is.

    Raises SubjectError when `target` is not MODULE:FUNCTION or FILE.py:FUNCTION, or the file is in no folder.
    """
    where, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier() or not where:
        raise SubjectError(f"subject: {target!r}; allowed: pkg.mod:build or file.py:build")
    if not where.endswith(".py"):
        return target
    file = os.path.expanduser(where)
    if file.startswith("~"):
        raise SubjectError(f"subject: {target!r}: there is no user {where.partition('/')[0][1:]!r} here")
    for folder in [Path("/")] if os.path.isabs(file) else folders:
        if os.path.isfile(folder / file):  # False, too, for a name that is too long
            return f"{(folder / file).resolve()}:{name}"
    looked = "" if os.path.isabs(file) else f" in {', '.join(str(f) for f in dict.fromkeys(folders))}"
    raise SubjectError(f"subject: no file {where!r}{looked}")


def load(target: str):
    """Import the target and return its build function. Import errors pass through as they are."""
    where, _, name = target.rpartition(":")
    if where.endswith(".py"):
        path = paths.resolve(where)
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    build = getattr(module, name, None)
    if not callable(build):
        raise SubjectError(f"subject: {target!r} has no callable {name!r}")
    return build


def options_for(build, subject: Subject, arm: Arm) -> tuple[dict, str]:
    """The keywords for `build`, and a reason to skip: a factor the arm sets that build does not take.

    The arm's options go over the subject's. An option that build does not take, or one that it needs and is not given,
    is a SubjectError; `tuning` is passed only if build takes it.
    """
    parameters = inspect.signature(build).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    options = {**subject.options, **arm.options}
    unknown = [k for k in options if not takes_all and k not in names]
    if unknown:
        allowed = ", ".join(sorted(names)) or "none"
        raise SubjectError(f"options: build takes no {unknown[0]!r}; allowed: {allowed}")
    for factor in SUBJECT_FACTORS:
        value = getattr(arm, factor)
        if value is None:
            continue
        if factor not in names and not takes_all:
            return options, f"the subject has no factor {factor!r}"
        options[factor] = value
    if "tuning" in names:
        options["tuning"] = arm.tuning
    fixed = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in fixed and p.name not in options]
    if needed:
        raise SubjectError(f"options: build needs {needed[0]!r}; given: {', '.join(sorted(options)) or 'none'}")
    return options, ""


def lacks(step: Step, arm: Arm) -> str:
    """A reason to skip: a factor that the arm sets and that is not among those the step says it has."""
    for factor in SUBJECT_FACTORS:
        if step.factors is not None and getattr(arm, factor) is not None and factor not in step.factors:
            return f"the subject has no factor {factor!r}"
    return ""


def as_step(value, what: str = "subject: build returned") -> Step:
    """What build returned, as a Step: a Step, or (callable, example inputs). An nn.Module's buffers are its state."""
    import torch

    if isinstance(value, tuple) and len(value) == 2 and callable(value[0]):
        fn, inputs = value
        inputs = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
        value = Step(fn=fn, make_inputs=lambda seed: _vary(inputs, seed))
    if not isinstance(value, Step):
        raise SubjectError(f"{what} {type(value).__name__}; allowed: a Step, or (callable, inputs)")
    _check_fields(value)
    if isinstance(value.fn, torch.nn.Module) and value.state is None:
        module = value.fn
        value.state = lambda: dict(module.named_buffers())
    return value


_CALLABLE = "fn make_inputs state advance around compiled reference check cost drive close".split()


def _check_fields(step: Step) -> None:
    """What a Step holds is of the kind that it will be used as. Raises SubjectError."""
    for name in _CALLABLE:
        given = getattr(step, name)
        if given is None and name not in ("fn", "make_inputs"):
            continue
        if not callable(given):
            raise SubjectError(f"step: {name} is {type(given).__name__}; allowed: a callable")
        if name == "around" and hasattr(given, "__enter__") and not isinstance(given, type):
            raise SubjectError("step: around is a context manager; allowed: a callable that makes a new one each time")
    given = step.tolerance
    for number in given.values() if isinstance(given, dict) else given if isinstance(given, (list, tuple)) else [given]:
        if number is None:
            continue
        if isinstance(number, bool) or not (isinstance(number, Real) and 0 <= number < math.inf):
            raise SubjectError(f"step: tolerance {number!r}; allowed: numbers from 0, relative to max|reference|")
    if step.twin is not None:
        as_step(step.twin, "step: twin is")


def _vary(inputs: tuple, seed: int) -> tuple:
    """Example inputs with floating-point tensors drawn anew: normal, with the example's mean and spread."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def one(x):
        if not isinstance(x, torch.Tensor):
            return x
        pinned = x.device.type == "cpu" and torch.cuda.is_initialized() and x.is_pinned()
        new = torch.empty_like(x, pin_memory=pinned).copy_(x.detach())
        if x.is_floating_point() and seed != 0:
            spread = x.detach().float().std().item() if x.numel() > 1 else 1.0
            noise = torch.randn(x.shape, generator=generator) * (spread or 1.0) + x.detach().float().mean().item()
            new.copy_(noise)
        return new.requires_grad_(x.requires_grad)

    return tuple(one(x) for x in inputs)
