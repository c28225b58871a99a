"""The Triton launches of one call of a step, recorded instead of made: what a user's own kernel is compiled from.

No GPU is needed. What a launch would have written stays as it was allocated (NaN, or the largest integer), and torch
ops between launches compute with that. A host that reads such a value could go anywhere next: that ends the recording,
which holds the launches before it, also where the step catches what is raised to end it.
"""

import contextlib
import traceback
from dataclasses import dataclass, field
from typing import Any

from ..kernels.sparse_mla.examples import Example
from . import triton_versions
from .poison import fresh_memory_is_nan
from .specialise import specialise
from .unreal import Unreal, UnrealValue, on_this_machine

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What a launch passes beside the kernel's own arguments, as far as a triton.Config holds it."""


_NEEDS_GPU = (
    "with arguments from the 'CPU' backend",
    "Torch not compiled with CUDA",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
)
"""What torch says where an operator has no implementation for the CPU, and where CUDA is asked for and missing."""


class RecordingError(RuntimeError):
    """The step could not be built or called here. One line says why.

    `needs_gpu`: no fault of the step's, which has an operator or asks for a device that this machine does not have.
    """

    needs_gpu = False


@dataclass(frozen=True)
class Launch:
    """One launch: the kernel below any autotuner, the configurations it would try, its arguments by name."""

    name: str
    kernel: Any
    configs: list
    args: dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """`examples`: each kernel of a call once for each configuration. `unseen`: what was not seen, a line each.

    `stopped`: where the host read a value that no launch had computed, so that the call was not followed to its end; ""
    if it was.
    """

    examples: list[Example]
    unseen: list[str] = field(default_factory=list)
    stopped: str = ""


def record_step(target: str, options: dict, sm: int) -> Recording:
    """Build the step `target` with `options` and record one call on make_inputs(0), as a GPU of capability `sm` has it.

    Two launches that compile alike are one. Raises RecordingError, and SubjectError for what breaks the Step contract.
    """
    import torch

    from ..records import Arm, Subject
    from ..subjects.loader import as_step, load, options_for

    with contextlib.ExitStack() as stack:
        unreal = Unreal()
        stack.enter_context(on_this_machine(unreal))
        launches = stack.enter_context(recording(sm, unreal))
        with explained("the step could not be built on this machine", target):
            build = load(target)
            keywords, _ = options_for(build, Subject(target=target, options=options), Arm())
            step = as_step(build(**keywords))
            if step.close:
                stack.callback(step.close)
            inputs = step.make_inputs(0)
            if unreal.stop:
                raise unreal.stop
        del launches[:]  # a build may warm its kernels up; only the call counts
        unreal.called_with(inputs)
        with explained("the step could not be called with its launches recorded instead of made", target):
            try:
                with step.around() if step.around else torch.no_grad(), fresh_memory_is_nan(), unreal:
                    if step.advance:
                        step.advance(0)
                    step.fn(*inputs)
            except (Exception, UnrealValue):
                if unreal.stop is None:
                    raise
        unreal.over()
        stopped = _stopped(unreal.stop, target) if unreal.stop else ""
        unseen = _unseen(launches, step.kernels, unreal.silent)
        return Recording(_examples(launches, step.pinned, sm), unseen, stopped)


def _stopped(error: UnrealValue, target: str) -> str:
    place = _place(error, target)
    if place is None:
        return f"stopped where {error}: what is launched after it is not listed"
    where, code = place
    read = next((f".{name}()" for name in ("item", "tolist", "numpy") if f".{name}(" in code), code)
    return f"stopped at {where} ({read}): what is launched after it is not listed"


def _place(error: BaseException, target: str) -> tuple[str, str] | None:
    """The innermost line of the subject that an exception came through, as (`my_rms.py:17`, its code)."""
    from ..probes.exceptions import subject_folders, tag_of
    from ..probes.scrub import relative

    folders = subject_folders(target)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if tag_of(f.filename, folders) == "subject"]
    if not frames:
        return None
    return f"{relative(frames[-1].filename)}:{frames[-1].lineno}", (frames[-1].line or "").strip()[:80]


@contextlib.contextmanager
def explained(what: str, target: str):
    """An exception of the block as a RecordingError whose one line begins with `what` and ends with the subject's."""
    import torch

    from ..probes.exceptions import text_of
    from ..subjects.loader import SubjectError

    try:
        yield
    except SubjectError:
        raise
    except (Exception, UnrealValue) as error:
        text = text_of(error).strip().splitlines() or [""]
        place = _place(error, target)
        at = f", at {place[0]}" if place else ""
        failed = RecordingError(f"{what}: {type(error).__name__}: {text[0]}{at}")
        failed.needs_gpu = not torch.cuda.is_available() and any(sign in text_of(error) for sign in _NEEDS_GPU)
        raise failed from error


@contextlib.contextmanager
def recording(sm: int, unreal: Unreal):
    """Inside the block no Triton kernel is launched; yields the list that launches go to.

    The classes are patched, so this belongs into a process of its own. Code that asks for the GPU's capability is told
    `sm`; a function under torch.compile is called as it is written.
    """
    import torch
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    launches: list[Launch] = []

    def note(kernel, configs, args: dict) -> None:
        if unreal.stop:  # the step goes on all the same, with a value that is made up
            return
        launches.append(Launch(unwrapped(kernel).__name__, kernel, configs, args))
        unreal.launched(args.values())

    def launch(self, *args, grid, warmup, **kwargs):
        if warmup:  # compiles ahead of a launch, with stand-ins for tensors
            return
        given = {**dict(zip(self.arg_names, args)), **kwargs}
        options = {name: given.pop(name) for name in OPTIONS if name in given and name not in self.arg_names}
        note(self, [_config(options) if options else None], given)

    def tune(self, *args, grid, warmup, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        # More than one configuration is narrowed down before they are tried; the functions for that are the user's.
        configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
        note(self.fn, list(configs), {**self.nargs, **kwargs})
        self.nargs = None

    with contextlib.ExitStack() as stack:
        stack.enter_context(triton_versions.targeting(sm))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        capability = (sm // 10, sm % 10)
        for owner, name, ours in (
            (JITFunction, "run", launch),
            (Autotuner, "run", tune),
            (torch.cuda, "get_device_capability", lambda device=None: capability),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, ours)
        yield launches


def unwrapped(kernel: Any) -> Any:
    """The jitted function under triton.autotune and triton.heuristics."""
    while not hasattr(kernel, "create_binder"):
        kernel = kernel.fn
    return kernel


def _config(options: dict, meta: dict | None = None):
    import triton

    return triton.Config(meta or {}, **options)


def _examples(launches: list[Launch], pinned: dict[str, dict], sm: int) -> list[Example]:
    found, calls = [], {}
    for launch in launches:
        seen = calls.setdefault(unwrapped(launch.kernel), set())
        key = specialise(launch.kernel, launch.args, launch.configs[0], sm).key()
        if key in seen:
            continue
        seen.add(key)
        name = launch.name if len(seen) == 1 else f"{launch.name} (call {len(seen)})"
        configs, chosen = _with_pinned(launch, pinned.get(launch.name))
        found += [Example(name, launch.kernel, config, launch.args, config is chosen) for config in configs]
    return found


def _with_pinned(launch: Launch, entry: dict | None) -> tuple[list, Any]:
    """The configurations and which of them is pinned: the only one, or that of the step's entry, added if it is new."""
    configs = launch.configs
    if len(configs) == 1:
        return configs, configs[0]
    if not entry:
        return configs, ()
    for config in configs:
        if entry.items() <= config.all_kwargs().items():
            return configs, config
    meta = {name: value for name, value in entry.items() if name not in OPTIONS}
    added = _config({name: value for name, value in entry.items() if name in OPTIONS}, meta)
    return [*configs, added], added


def _unseen(launches: list[Launch], declared: dict[str, Any], silent: list[str]) -> list[str]:
    launched = {unwrapped(launch.kernel) for launch in launches}
    lines = [
        f"kernel {name} is declared and was not launched by the call"
        for name, kernel in declared.items()
        if unwrapped(kernel) not in launched
    ]
    return lines + [f"operator {name} launched no Triton kernel here" for name in silent]
