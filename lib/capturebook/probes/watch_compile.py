"""Witnesses of Triton, Inductor and Dynamo: what they compile, tune and load, and which guard made them do it again."""

import re

from .witnesses import Witnesses, replace


def triton_jit(w: Witnesses, stack) -> None:
    from triton import knobs

    def compiled(*, repr, **_):
        w.note("jit", repr.partition("[")[0], frame=True)

    def loading(module, function, name, metadata, hash):
        w.note("module_load", name)

    before = knobs.runtime.jit_post_compile_hook
    knobs.runtime.jit_post_compile_hook = compiled
    stack.callback(setattr, knobs.runtime, "jit_post_compile_hook", before)
    knobs.runtime.kernel_load_start_hook.add(loading)
    stack.callback(knobs.runtime.kernel_load_start_hook.remove, loading)


def triton_autotune(w: Witnesses, stack) -> None:
    from triton.runtime.autotuner import Autotuner

    def make(original):
        def bench(self, *args, config, **meta):
            w.note("autotune", self.base_fn.__name__, frame=True, config=config.all_kwargs())
            return original(self, *args, config=config, **meta)

        return bench

    replace(stack, Autotuner, "_bench", make)


def inductor_autotune(w: Witnesses, stack) -> None:
    """Importing triton_heuristics does not touch CUDA; it is part of what any compiled arm loads anyway."""
    from torch._inductor.runtime import triton_heuristics as heuristics

    def make(original):
        def autotune(self, *args, **kwargs):
            users = self.heuristic_type is heuristics.HeuristicType.USER_AUTOTUNE
            w.note(
                "inductor_autotune", self.fn.__name__, users=users, configs=len(self.launchers or self.configs or ())
            )
            return original(self, *args, **kwargs)

        return autotune

    replace(stack, heuristics.CachingAutotuner, "autotune_to_one_config", make)


def dynamo(w: Witnesses, stack) -> None:
    from torch._dynamo.callback import callback_handler

    def start(args):
        trigger = getattr(args.callback_trigger, "name", str(args.callback_trigger))
        w.note("dynamo" if trigger == "DYNAMO" else trigger.lower(), f"compile {args.compile_id}", frame=True)

    def make(original):
        def clear():
            original()
            callback_handler.register_start_callback(start)

        return clear

    callback_handler.register_start_callback(start)
    stack.callback(callback_handler.remove_start_callback, start)
    # A step may call torch._dynamo.reset(), which takes every callback away.
    replace(stack, callback_handler, "clear", make)


def recompile(w: Witnesses, stack) -> None:
    """Which guard failed, when a function that was compiled before is compiled again."""
    from torch._dynamo import convert_frame

    def make(original):
        def reasons(*args, **kwargs):
            found = original(*args, **kwargs)
            # Behind the guard Dynamo quotes the line it came from, with this machine's path, cut or whole.
            guard = re.split(r"\s+# ", str(found[0]), maxsplit=1)[0][:500] if found else "no guard is named"
            w.note("recompile", guard, frame=True)
            return found

        return reasons

    replace(stack, convert_frame, "get_and_maybe_log_recompilation_reasons", make)
