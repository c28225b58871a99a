"""Kernels whose Python floats come as fp64: what Inductor writes for them, where Triton's own launcher writes fp32."""

import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from triton._C.libtriton import ir
from triton.compiler.compiler import make_backend

from capturebook.kernels import glue, routing  # noqa: F401  registers their operators
from capturebook.kernels.glue import examples as glue_examples
from capturebook.kernels.routing import examples as routing_examples
from capturebook.kernels.sparse_mla import examples as mla_examples
from capturebook.kernels.sparse_mla.examples import Example
from capturebook.measure.specialise import specialise

OPAQUE = {
    "sparse_mla_decode_auto",
    "sparse_mla_decode_gluon_bf16",
    "sparse_mla_decode_gluon_fp8",
}
"""Operators that Inductor calls and does not look into: their kernels are launched by Triton."""


EXAMPLES = {
    "glue_swiglu": glue_examples.examples,
    "glue_swiglu_quantise": glue_examples.examples,
    "route": routing_examples.examples,
    "sparse_mla_decode": mla_examples.examples,
    "sparse_mla_decode_fp8": mla_examples.examples_fp8,
    "sparse_mla_decode_v32": partial(mla_examples.examples, cache="v32"),
}
"""Real calls of the kernels of each operator that takes a Python float."""


def with_floats(examples) -> list[Example]:
    """One call of each kernel that gets a Python float; those in Gluon are left out, as in OPAQUE."""
    found = {}
    for example in examples(90):
        if "gluon" not in example.name and any(isinstance(value, float) for value in example.args.values()):
            found.setdefault((example.kernel.__name__, example.args.get("FP8")), example)
    return list(found.values())


def as_inductor_calls(example: Example) -> str:
    """The kernel in Triton's IR with fp64 wherever the call has a Python float."""
    spec = specialise(example.kernel, example.args, example.config, 90)
    floats = {name for name, value in example.args.items() if isinstance(value, float)}
    spec = replace(spec, signature={n: "fp64" if n in floats else kind for n, kind in spec.signature.items()})
    context, backend = ir.context(), make_backend(spec.target)
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(spec.options)
    return str(spec._source().make_ir(spec.target, spec.options, functions, backend.get_module_map(), context))


def test_every_operator_with_a_python_float_is_here():
    taking = {
        schema.name.removeprefix("capturebook::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("capturebook::") and any(str(a.type) == "float" for a in schema.arguments)
    }
    assert taking == OPAQUE | set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_tensor_becomes_fp64(name):
    """It would be computed at 1/64 of the speed, and what moves bits of an fp32 would not compile."""
    called = with_floats(EXAMPLES[name])
    assert called
    for example in called:
        code = as_inductor_calls(example)
        assert re.search(r"%\w+: f64", code), f"{example.name}: the float is no fp64 here"
        assert not re.findall(r"tensor<[^>]*f64>", code), example.name
