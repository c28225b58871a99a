"""Tuning of Triton autotuners in this process: whose they are, pinning them, and reading their winners."""

import gc


def autotuners() -> dict:
    """All Autotuner objects in this process, by their kernel's name (by type: isinstance() would wake weak proxies)."""
    from triton.runtime.autotuner import Autotuner

    return {tuner.base_fn.__name__: tuner for tuner in gc.get_objects() if issubclass(type(tuner), Autotuner)}


def prepare(arm, args: dict) -> None:
    """Before the subject is imported: an Autotuner reads at its decoration whether results go to disk."""
    if args.get("cache_results") or arm.tuning == "cached":
        import triton

        triton.knobs.autotuning.cache = True


def pin_all(step, arm, winners: dict) -> dict | None:
    """For tuning=pinned: give each of the step's autotuners one configuration, its pinned entry or a live winner.

    Returns the fields that ask the pool for a live run's winners when an autotuner of several configurations has
    neither, else None. A step that was built with tuning=pinned has pinned its own.
    """
    if arm.tuning != "pinned" or arm.variant != "step":
        return None
    known = {**winners, **{name: [{"config": config}] for name, config in step.pinned.items()}}
    tuners = {name: t for name, t in autotuners().items() if not step.kernels or name in step.kernels}
    open_ones = {name: t for name, t in tuners.items() if len(t.configs) > 1}
    if open_ones and not known:
        return {"status": "skipped", "reason": "no pinned tuning and no live winner", "payload": {"needs": "winners"}}
    for name, tuner in open_ones.items():
        if name in known:
            pin(tuner, known[name][0]["config"])
    return None


def pin(tuner, config: dict) -> None:
    """Leave an autotuner one configuration: `config` holds its keywords, num_warps and num_stages among them."""
    import triton

    launch = ("num_warps", "num_stages", "num_ctas", "maxnreg")
    chosen = [c for c in tuner.configs if all(c.all_kwargs().get(k) == v for k, v in config.items() if v is not None)]
    meta = {k: v for k, v in config.items() if k not in launch}
    options = {k: v for k, v in config.items() if k in launch and v is not None}
    tuner.configs = chosen[:1] or [triton.Config(meta, **options)]
    tuner.cache.clear()


def winners() -> dict:
    """What each autotuner has chosen here: {kernel: [{"key", "config"}]}, and the single one of a pinned kernel."""
    found = {}
    for name, tuner in autotuners().items():
        chosen = [{"key": repr(key), "config": config.all_kwargs()} for key, config in tuner.cache.items()]
        if not chosen and len(tuner.configs) == 1:
            chosen = [{"key": "pinned", "config": tuner.configs[0].all_kwargs()}]
        if chosen:
            found[name] = chosen
    return found
