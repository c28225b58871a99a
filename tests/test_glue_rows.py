"""Norms, rotation, SwiGLU, fp8 and cache entries on a CPU: references by hand, operators, interpreter, chain."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from capturebook.kernels import glue
from capturebook.kernels.glue import reference_rows as reference
from capturebook.kernels.glue.cost import chain_cost, mhc_cost
from capturebook.kernels.glue.inputs import make_inputs, make_layer
from capturebook.kernels.sparse_mla import formats
from capturebook.measure import own_step
from capturebook.subjects import glue_chain
from test_kernels_interpret import pytestmark as interpreter_runs

BF16, FP32, INT32 = torch.bfloat16, torch.float32, torch.int32


def normal(*shape, dtype=FP32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def test_rotation_is_multiplication_by_complex_numbers():
    table, positions, x = reference.rotation_table(50), torch.tensor([0, 3, 49]), normal(3, 2, 512)
    turned = reference.rotate_reference(x, table, positions)
    assert torch.equal(turned[:, :, :448], x[:, :, :448].double()) and torch.equal(turned[0], x[0].double())
    for row, position in enumerate(positions.tolist()):
        for pair in range(32):
            at = 448 + 2 * pair
            factor = complex(math.cos(position * 10000 ** (-pair / 32)), math.sin(position * 10000 ** (-pair / 32)))
            want = complex(*x[row, 1, at : at + 2].tolist()) * factor
            assert torch.allclose(turned[row, 1, at : at + 2], torch.tensor([want.real, want.imag]).double(), atol=1e-6)
    back = reference.rotate_reference(turned, table, positions, inverse=True)
    assert (back - x).abs().max() <= 1e-6


def test_norm_and_swiglu_by_hand():
    x = torch.tensor([[3.0, -4.0]])
    assert torch.allclose(reference.rms_norm_reference(x), x.double() / math.sqrt(12.5 + 1e-6))
    gained = reference.rms_norm_reference(x, torch.tensor([2.0, 1.0]))
    assert torch.allclose(gained, torch.tensor([[6.0, -4.0]]).double() / math.sqrt(12.5 + 1e-6))
    gate, up = torch.tensor([[1.0, 30.0, -30.0]]), torch.tensor([[-20.0, 2.0, 20.0]])
    want = [-10 / (1 + math.exp(-1)), 10 / (1 + math.exp(-10)) * 2, -30 / (1 + math.exp(30)) * 10]
    found = reference.swiglu_reference(torch.cat((gate, up), 1), 10.0)
    assert torch.allclose(found, torch.tensor([want]).double())


@pytest.mark.parametrize(
    "amax, scale", [(448.0, 1.0), (448.5, 2.0), (0.875, 2.0**-9), (1.0, 2.0**-8), (0.0, 2.0**-22), (1e-4, 2.0**-22)]
)
def test_a_scale_is_the_least_power_of_two_that_holds_the_group(amax, scale):
    x = torch.zeros(2, 256)
    x[1, 130] = -amax
    values, scales = reference.quantise_reference(x)
    assert scales[1, 1] == scale and scales.stride() == (1, 2)
    assert (reference.dequantise(values, scales) - x).abs().max() <= amax / 16


def test_fp8_is_within_half_a_step_of_every_value():
    x = normal(7, 384) * torch.logspace(-3, 3, 7)[:, None]
    values, scales = reference.quantise_reference(x)
    step = torch.maximum(x.abs() / 16, scales.repeat_interleave(128, 1) / 1024)
    assert ((reference.dequantise(values, scales) - x).abs() <= step).all()


@pytest.mark.parametrize("page", [2, 64])
def test_a_store_takes_nothing_for_negative_slots(page):
    rows, slots = normal(4, 512), torch.tensor([page + 1, -1, 0, -7], dtype=INT32)
    cache = torch.full((3, formats.page_stride(page)), 7, dtype=torch.uint8)
    plain = torch.full((3 * page, 512), 7.0, dtype=BF16)
    before = cache.clone()
    reference.store_reference(rows, cache, torch.full((4,), -1, dtype=INT32))
    assert torch.equal(cache, before)
    reference.store_reference(rows, cache, slots)
    reference.store_reference(rows, plain, slots)
    right = formats.quantise(rows[[2, 0]], 1)
    held = formats.dequantise(cache, slots[[2, 0]])
    assert torch.equal(held, formats.dequantise(right, torch.tensor([0, 1])))
    changed = (cache != before).sum(1)
    assert changed[2] == 0 and 500 < changed[0] <= 583 and 500 < changed[1] <= 583
    assert torch.equal(plain[[page + 1, 0]], rows[[0, 2]].to(BF16)) and (plain == 7).all(1).sum() == 3 * page - 2


def test_operators_on_a_cpu():
    ops = torch.ops.capturebook
    layer, (*mhc, out) = make_layer(1, 3, heads=8, page=2), make_inputs(1, 3, 1024)
    stored = (layer["table"], layer["positions"], layer["cache"], layer["slots"])
    _, after, comb = glue.mhc_pre(*mhc)
    for op, arguments in (
        (ops.glue_quantise, (layer["gate_up"],)),
        (ops.glue_swiglu, (layer["gate_up"], 10.0)),
        (ops.glue_q_heads, (layer["q"], *stored[:2], 16, True)),
        (ops.glue_q_heads, (layer["q"][:, :, :128].contiguous(), *stored[:2], 8, False)),
        (ops.glue_swiglu_quantise, (layer["gate_up"], 10.0)),
        (ops.glue_out_heads_quantise, (layer["attended"], *stored[:2], 4)),
        (ops.glue_out_heads, (layer["attended"], *stored[:2], 4)),
        (ops.glue_qkv, (layer["latent"], *layer["norms"], *stored)),
        (ops.glue_entry, (normal(3, 512), layer["norms"][1], *stored)),
        (ops.mhc_pre_norm, (*mhc, normal(1024))),
        (ops.mhc_post_pre_norm, (mhc[0], out, after, comb, *mhc[1:], normal(1024))),
    ):
        torch.library.opcheck(op, arguments)


def test_what_operators_return():
    layer = make_layer(2, 3, heads=8, page=2)
    table, positions = layer["table"], layer["positions"]
    values, scales = glue.swiglu_quantise(layer["gate_up"], 1.5)
    want = reference.quantise_reference(reference.swiglu_reference(layer["gate_up"], 1.5, FP32))
    assert (values.dtype, scales.dtype, scales.stride()) == (torch.float8_e4m3fn, FP32, (1, 3))
    assert torch.equal(values.view(torch.uint8), want[0].view(torch.uint8)) and torch.equal(scales, want[1])
    padded = glue.q_norm_rope(layer["q"], table, positions, heads=16)
    assert padded.shape == (3, 16, 512) and (padded[:, 8:] == 0).all() and (padded[:, :8] != 0).any()
    values, scales = glue.rope_inverse_quantise(padded, table, positions, heads=8)
    assert values.shape == (3, 8 * 512) and scales.shape == (3, 32)
    unturned = reference.rms_norm_reference(layer["q"], None, FP32).flatten(1)
    assert (reference.dequantise(values, scales, FP32) - unturned).abs().max() <= unturned.abs().max() / 15
    assert torch.equal(
        glue.rope_inverse(padded, table, positions, 8), glue.rope_inverse(padded[:, :8].contiguous(), table, positions)
    )
    assert (glue.rope_inverse(padded, table, positions, 8) - unturned).abs().max() <= unturned.abs().max() / 100
    assert torch.equal(glue.swiglu(layer["gate_up"]), reference.swiglu_reference(layer["gate_up"], 10.0, FP32).to(BF16))
    narrow = layer["q"].reshape(3, 32, 128)
    assert torch.equal(
        glue.rope(narrow, table, positions), reference.rotate_reference(narrow, table, positions, dtype=FP32).to(BF16)
    )
    normed, values, scales = glue.qkv_norm_store(
        layer["latent"], *layer["norms"], table, positions, layer["cache"], layer["slots"]
    )
    assert normed.shape == (3, 1024) and (layer["cache"] != 0).any(1).all()


@pytest.mark.parametrize(
    "call, line",
    [
        (lambda x: glue.quantise(x["gate_up"][:, :100]), "x: shape (3, 100); allowed: [rows, a multiple of 128]"),
        (lambda x: glue.quantise(x["gate_up"].float()), "x: dtype torch.float32; allowed: torch.bfloat16"),
        (lambda x: glue.quantise(x["gate_up"][:, ::2]), "x: strides (4096, 2); allowed: contiguous"),
        (lambda x: glue.swiglu_quantise(x["gate_up"][:, :128].contiguous()), "allowed: [rows, a multiple of 256]"),
        (lambda x: glue.swiglu_quantise(x["gate_up"], 0.0), "limit: 0.0; allowed: above 0"),
        (lambda x: glue.q_norm_rope(x["q"], x["table"], x["positions"], 4), "heads: 4; allowed: at least q's 8"),
        (lambda x: glue.q_norm_rope(x["q"], x["table"], x["positions"].long()), "positions: dtype torch.int64"),
        (lambda x: glue.q_norm_rope(x["q"][:, :, :64], x["table"], x["positions"]), "[batch, heads, 512]"),
        (lambda x: glue.q_norm_rope(x["q"], x["table"][:, :32].contiguous(), x["positions"]), "table: shape"),
        (
            lambda x: glue.rope_inverse_quantise(x["q"], x["table"], x["positions"], 9),
            "heads: 9; allowed: 1 to out's 8",
        ),
        (
            lambda x: glue.rope_inverse_quantise(x["q"], x["table"], x["positions"], 0),
            "heads: 0; allowed: 1 to out's 8",
        ),
        (lambda x: glue.rope(x["q"][:, :, :96].contiguous(), x["table"], x["positions"]), "[batch, heads, 512]"),
        (lambda x: store(x, q_norm=normal(1000)), "q_norm: shape (1000,); allowed: [a power of two from 128 on]"),
        (lambda x: store(x, latent=x["latent"][:, :512].contiguous()), "latent: shape (3, 512); allowed: [3, 1536]"),
        (lambda x: store(x, cache=torch.zeros(3, 600, dtype=torch.uint8)), "cache: 600 bytes a page; allowed:"),
        (lambda x: store(x, cache=torch.zeros(8, 64, dtype=BF16)), "cache: shape (8, 64); allowed: [any, 512]"),
        (lambda x: store(x, slots=x["slots"][:2]), "slots: shape (2,); allowed: [3]"),
    ],
)
def test_bad_arguments_are_named_in_one_line(call, line):
    with pytest.raises(ValueError) as caught:
        call(make_layer(0, 3, heads=8, page=2))
    assert line in str(caught.value) and "\n" not in str(caught.value)


def store(layer: dict, **changed):
    names = ("latent", "q_norm", "kv_norm", "table", "positions", "cache", "slots")
    given = layer | dict(zip(("q_norm", "kv_norm"), layer["norms"])) | changed
    return glue.qkv_norm_store(*(given[name] for name in names))


def test_bad_weights_of_the_fused_sites_are_named():
    streams, projection, scale, base, out = make_inputs(0, 2, 1024)
    _, after, comb = glue.mhc_pre(streams, projection, scale, base)
    with pytest.raises(ValueError, match=r"^norm: shape \(512,\); allowed: \[1024\]$"):
        glue.mhc_pre_norm(streams, projection, scale, base, normal(512))
    with pytest.raises(ValueError, match=r"^comb: dtype torch.bfloat16; allowed: torch.float32$"):
        glue.mhc_post_pre_norm(streams, out, after, comb.bfloat16(), projection, scale, base, normal(1024))


def test_cost_by_hand():
    # one token of 1024 wide streams, 2 heads, a latent of 128 and 512, SwiGLU to 256
    site = mhc_cost(1, 1024).bytes + 1024 + 4 * 8 + 4 * 1024
    latent = 2 * 640 + 4 * 640 + 2 * 128 + 128 + 4 + 584 + 4
    heads = 2 * 2 * 1024 + 2 * 1024 + 1024 + 4 * 8
    assert chain_cost(1, 1024, 2, 128, 256).bytes == 2 * site + latent + heads + 2 * 512 + 256 + 8 + 3 * 260


INTERPRETED = Path(__file__).parent / "interpreted_glue.py"


@interpreter_runs
def test_interpreted_kernels_against_float64():
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(INTERPRETED)], env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len(found) == 7
    for case, errors in found.items():
        for name, error in errors.items():
            # bytes and scales that differ, a value at a half by fp32's rounding; bf16 that is cut: 2 ** -7 of a value
            allowed = 2 if name.endswith("fp8") else 2**-7 if name == "cut" else 1e-6
            assert error <= allowed, (case, name, error)


def test_the_chain_is_right_and_a_wrong_one_is_not():
    step = glue_chain.build(batch=3, hidden=1024, heads=8)
    for name, side in (("step", step), ("twin", step.twin)):
        variant = own_step.Variant(name, own_step.Side(side), side.fn)
        assert [check.ok for check in own_step.check(variant, step, step.make_inputs(1), name)] == [True]
    outputs = step.fn(*step.make_inputs(2))
    assert step.check(step.make_inputs(2), outputs)
    for name in outputs:
        value = outputs[name].clone()
        wrong = value.float()
        wrong[-1] *= 1.3
        wrong = wrong.to(value.dtype) if value.dtype != torch.uint8 else value.flip(0)
        assert not step.check(step.make_inputs(2), outputs | {name: wrong}), name
