"""What a launch would compile: signature, constants and attributes from the kernel's own binder."""

from dataclasses import dataclass
from typing import Any

from . import triton_versions


@dataclass(frozen=True)
class Specialisation:
    """A jitted kernel bound to one call and one target: all that `triton.compile` needs.

    signature {argument: type}, constants {path: value}, attributes {path: [["tt.divisibility", 16]]}, options: the
    backend's (num_warps, num_stages and so on).
    """

    kernel: Any
    target: Any
    signature: dict[str, str]
    constants: dict[tuple, Any]
    attributes: dict[tuple, Any]
    options: Any

    def key(self) -> str:
        """Text that names all this without the target: source with what it calls, signature, attributes, options."""
        options = {name: value for name, value in sorted(vars(self.options).items()) if name != "extern_libs"}
        return "\n".join((self._source().hash(), repr(sorted(map(repr, self.attributes.items()))), repr(options)))

    def arguments(self) -> dict[str, str]:
        """{argument: "*bf16 %16", "i32", "=64" for a constant}: how the compiler sees each argument."""
        shown = {}
        for index, (name, kind) in enumerate(self.signature.items()):
            if (index,) in self.constants:
                shown[name] = f"={self.constants[(index,)]}"
            else:
                aligned = any(pair == ["tt.divisibility", 16] for pair in self.attributes.get((index,), []))
                shown[name] = f"{kind} %16" if aligned else str(kind)
        return shown

    def compile(self):
        """The CompiledKernel, from an empty cache so that ptxas runs. Not loaded onto any GPU."""
        import tempfile

        import triton
        from triton import knobs

        with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
            knobs.cache.dir = folder
            return triton.compile(self._source(), target=self.target, options=vars(self.options))

    def store(self) -> None:
        """Compile into Triton's own cache, where a launch on the same target finds it. May be called from threads."""
        import triton

        triton.compile(self._source(), target=self.target, options=vars(self.options))

    def _source(self):
        # create_binder leaves the source class there: Gluon's functions have their own
        return self.kernel.ASTSource(self.kernel, self.signature, self.constants, self.attributes)


def specialise(kernel: Any, args: dict[str, Any], config: Any, sm: int) -> Specialisation:
    """Bind `kernel[grid](**args)` as a launch on `sm` would, with one autotune `config` (or None).

    `kernel` may be wrapped in triton.autotune and triton.heuristics. The binder reads dtypes, values (equal to 1,
    divisible by 16) and pointer alignment from the arguments, so these must be like those of a real call; tensors
    may live on any device, "meta" included (whose pointer counts as aligned). A configuration's pre_hook is called with
    the arguments, as before a launch: it may set the block shape of a tensor descriptor.
    """
    keywords = {**args, **(config.all_kwargs() if config else {})}
    if config and config.pre_hook:
        config.pre_hook(keywords)
    while not hasattr(kernel, "create_binder"):
        if hasattr(kernel, "values"):  # triton.heuristics
            for name, heuristic in kernel.values.items():
                keywords[name] = heuristic(keywords)
        kernel = kernel.fn
    keywords |= triton_versions.launch_options(kernel)
    with triton_versions.targeting(sm) as target:
        _, _, _, backend, binder = kernel.create_binder()
        bound, specialization, options = binder(**keywords)
        options, signature, constants, attributes = kernel._pack_args(backend, keywords, bound, specialization, options)
    return Specialisation(kernel, target, signature, constants, attributes, options)


def config_text(config: Any) -> str:
    """`BLOCK_N=64 num_warps=8 num_stages=2`: what makes one configuration of a kernel; "default" for None."""
    if config is None:
        return "default"
    shown = {name: value for name, value in config.all_kwargs().items() if not (name == "num_ctas" and value == 1)}
    return " ".join(f"{name}={value}" for name, value in shown.items())
