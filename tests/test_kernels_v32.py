"""V3.2's decode on a CPU: its cache byte by byte, twin and reference, the operator, machine code for every target."""

import math
import struct
from dataclasses import replace
from functools import partial

import pytest
import torch

from capturebook.kernels.sparse_mla import decode, decode_reference, error
from capturebook.kernels.sparse_mla.cost import decode_cost
from capturebook.kernels.sparse_mla.formats import format_of
from capturebook.kernels.sparse_mla.formats_v32 import TOKEN_BYTES, dequantise, quantise
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.reference import TOLERANCE, lse_error
from kernel_cases import EMPTY_ROWS, edge_inputs, to_v32
from test_kernels_formats import bf16, bf16_bytes, e4m3, nearest_e4m3

SMALL = dict(batch=3, heads=16, context=300, window=0, topk=200, ratio=1, cache="v32")


def test_dequantiser_byte_by_byte():
    rows = torch.randn(6, 576, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 3, 6)[:, None]
    cache = quantise(rows.bfloat16())
    assert cache.shape == (6, TOKEN_BYTES) and TOKEN_BYTES == 656 and format_of(cache) == "v32"
    found = dequantise(cache, torch.arange(6))
    for token in (0, 3, 5):
        data = bytes(cache[token].tolist())
        scales = struct.unpack("<4f", data[512:528])
        assert all(s > 0 and struct.pack("<f", s)[:2] == b"\0\0" for s in scales), "powers of two"
        want = [e4m3(data[i]) * scales[i // 128] for i in range(512)]
        want += [bf16(*data[at : at + 2]) for at in range(528, 656, 2)]
        assert found[token].tolist() == want
    assert ((found - rows.double()).norm(dim=1) / rows.double().norm(dim=1)).max() < 0.04


def test_quantiser_byte_by_byte():
    """Rows of every size that bf16 has, from below the least scale to its end; groups all zero, or one value."""
    generator = torch.Generator().manual_seed(2)
    size = torch.randint(-30, 120, (40, 9, 1), generator=generator).float()
    size[:, 1:8:2] = size[:, 0:8:2]  # a group of 128 has one size
    rows = (torch.randn(40, 9, 64, generator=generator) * torch.exp2(size)).bfloat16().view(40, 576)
    rows[0, :128], rows[1, 128:256] = 0.0, 0.0
    rows[1, 140] = 448.0  # exactly the largest value at scale 1
    rows[0, 130], rows[0, 256:384] = torch.finfo(torch.bfloat16).max, -1e-30
    for row, token in zip(rows.float().tolist(), quantise(rows), strict=True):
        data, scales = b"", b""
        for values in (row[at : at + 128] for at in range(0, 512, 128)):
            exponent = -13  # 2 ** -13 is the least power of two above 1e-4
            while max(map(abs, values)) > math.ldexp(448.0, exponent):
                exponent += 1
            data += bytes(nearest_e4m3(math.ldexp(value, -exponent)) for value in values)
            scales += struct.pack("<f", math.ldexp(1.0, exponent))
        assert bytes(token.tolist()) == data + scales + b"".join(map(bf16_bytes, row[512:]))


@pytest.mark.parametrize("kind", ["random", "peaked", "sink"])
def test_twin_against_float64(kind):
    inputs = make_inputs(5, kind=kind, holes=0.1, **SMALL)
    out, lse = decode(*inputs.args())
    want, want_lse = decode_reference(*inputs.args())
    assert out.shape == want.shape == (3, 16, 512) and out.dtype == torch.bfloat16
    assert error(out, want) <= TOLERANCE and lse_error(lse, want_lse) <= 1e-3


def test_edges():
    """Two lists; and a case whose unused slots were not unused once made every request but one NaN, in both."""
    inputs = to_v32(edge_inputs())
    out, lse = decode(*inputs.args())
    want, want_lse = decode_reference(*inputs.args())
    assert want.isfinite().all(), "the reference read a slot that no list names"
    assert (want[EMPTY_ROWS] == 0).all() and (want_lse[EMPTY_ROWS] == -torch.inf).all()
    assert (want[:, 0] == 0).all() and (want[2, 1] != 0).any(), "a sink of +inf takes everything, -inf nothing"
    assert error(out, want) <= TOLERANCE and lse_error(lse, want_lse) <= 1e-3


def test_the_reference_by_hand():
    """Two tokens and one head: keys of 576 values weigh, values of 512 come out."""
    inputs = make_inputs(0, batch=1, heads=1, context=2, window=0, topk=2, ratio=1, cache="v32", extra_slots=64)
    inputs = replace(inputs, extra_lengths=torch.tensor([2], dtype=torch.int32), sink=torch.tensor([-torch.inf]))
    keys = dequantise(inputs.extra_cache, inputs.extra_indices[0])
    scores = [float(torch.dot(inputs.q[0, 0].double(), key)) / 24 for key in keys]
    weights = torch.tensor(scores, dtype=torch.float64).softmax(0)
    out, lse = decode_reference(*inputs.args())
    assert torch.allclose(out[0, 0], weights[0] * keys[0, :512] + weights[1] * keys[1, :512], atol=1e-12)
    assert float(lse) == pytest.approx(math.log(sum(map(math.exp, scores))))


def test_the_rotary_part_weighs_in_scores_and_not_in_values():
    inputs = make_inputs(5, **SMALL)
    other = inputs.extra_cache.clone()
    other[:, 528:] = 0
    flat = inputs.q.clone()
    flat[:, :, 512:] = 0
    out, without, zeroed = (
        decode_reference(*replace(inputs, **changed).args())[0] for changed in ({}, {"q": flat}, {"extra_cache": other})
    )
    assert error(zeroed, without) < 1e-9 and error(out, without) > 0.1


def test_operator_is_checked_and_bad_arguments_are_one_line():
    inputs = make_inputs(5, **SMALL)
    torch.library.opcheck(torch.ops.capturebook.sparse_mla_decode_v32, (*inputs.args(), "mma", "live"))
    torch.library.opcheck(torch.ops.capturebook.sparse_mla_decode_auto, (*inputs.args(), "any"))
    for kernel in ("mma", "auto"):
        step = torch.compile(partial(decode, scale=inputs.scale, kernel=kernel), backend="eager", fullgraph=True)
        assert torch.equal(step(*inputs.tensors())[0], decode(*inputs.args(), kernel=kernel)[0])
    with pytest.raises(ValueError, match=r"^q: shape \(3, 16, 512\); allowed: \[batch, heads, 576\] with a v32 cache$"):
        decode(*replace(inputs, q=inputs.q[:, :, :512].contiguous()).args())
    short = torch.zeros(300, 655, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"^extra_cache: shape \(300, 655\); allowed: \[any, 656\]$"):
        decode(*replace(inputs, extra_cache=short).args())
    for kernel in ("simt", "gluon"):
        with pytest.raises(ValueError, match=rf"^kernel: '{kernel}' on a v32 cache; allowed: mma, auto$"):
            decode(*inputs.args(), kernel=kernel)


def test_cost_by_hand():
    # 660 B a token with its index; q of 576 and out of 512 in bf16, and lse; a sink a head, two lengths a request
    cost = decode_cost(batch=64, heads=128, entries=64 * 2048, cache="v32")
    assert cost.bytes == 64 * 2048 * 660 + 64 * 128 * (2 * 1088 + 4) + 4 * 128 + 8 * 64
    # an H200, as FlashMLA's benchmark counts: 45.9 us, of arithmetic
    assert cost.floor(4.63e12, 795e12) * 1e6 == pytest.approx(45.9, abs=0.05)


def test_pinned_configurations_compile_for_sm_90_without_spills_and_fit():
    """For sm_100 and sm_120: test_kernels_machine_code.py."""
    import triton

    from capturebook.kernels.sparse_mla import pinned
    from capturebook.kernels.sparse_mla.launch import constants_of, main_arguments, targets
    from capturebook.kernels.sparse_mla.mma_v32 import CONFIGS, mma_v32_kernel, shared_bytes
    from capturebook.measure import crosscompile
    from capturebook.measure.specialise import specialise

    sm, limit = 90, 232_448
    newer = tuple(map(int, triton.__version__.split(".")[:2])) > (3, 6)
    inputs = make_inputs(5, **SMALL | {"topk": 256})  # a multiple of 16, as V3.2's 2048: addresses take fewer registers
    args = main_arguments(inputs.tensors(), *targets(inputs.q, 2), inputs.scale, False) | constants_of("mma", "v32", sm)
    sizes = {heads: pinned.pinned_config("mma", sm, heads, 64, "v32") for heads in (16, 128)}
    for heads, config in sizes.items():
        assert config in CONFIGS and config.kwargs["BLOCK_H"] < max(2 * heads, 17)
        row = crosscompile.compile_row(specialise(mma_v32_kernel, args | {"HEADS": heads}, config, sm), sm)
        # Triton 3.9 spills 908 bytes where a tile is one of wgmma, 3.6 none
        assert row["spills"] == 0 or config.kwargs["BLOCK_H"] == 64 and newer
        assert row["shared"] <= limit and row["shared"] <= shared_bytes(config, sm) <= row["shared"] + 1024
        assert {"HMMA", "HGMMA"} & row["instructions"].keys()
