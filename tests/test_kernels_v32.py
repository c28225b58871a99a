"""V3.2's decode on a CPU: its cache byte by byte, twin and interpreted kernel against float64."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from capturebook.kernels.sparse_mla import error
from capturebook.kernels.sparse_mla.reference import TOLERANCE, lse_error
from capturebook.kernels.sparse_mla_v32 import decode_v32, decode_v32_reference
from capturebook.kernels.sparse_mla_v32.formats import TOKEN_BYTES, dequantise, quantise
from test_kernels_interpret import pytestmark as interpreter_runs
from v32_cases import make


def e4m3(byte: int) -> float:
    """OCP 8-bit floating point, E4M3: 1 sign, 4 exponent (bias 7), 3 mantissa bits."""
    sign, exponent, mantissa = -1.0 if byte >> 7 else 1.0, byte >> 3 & 15, byte & 7
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def test_dequantiser_byte_by_byte():
    rows = torch.randn(6, 576, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 3, 6)[:, None]
    cache = quantise(rows.bfloat16())
    assert cache.shape == (6, TOKEN_BYTES) and TOKEN_BYTES == 656
    found = dequantise(cache, torch.arange(6))
    for token in (0, 3, 5):
        data = bytes(cache[token].tolist())
        scales = struct.unpack("<4f", data[512:528])
        assert all(s > 0 and struct.pack("<f", s)[:2] == b"\0\0" for s in scales), "powers of two"
        want = [e4m3(data[i]) * scales[i // 128] for i in range(512)]
        want += [struct.unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(528, 656, 2)]
        assert found[token].tolist() == want
    assert ((found - rows.double()).norm(dim=1) / rows.double().norm(dim=1)).max() < 0.04


@pytest.mark.parametrize("case", ["random", "peaked", "edges"])
def test_twin_against_float64(case):
    inputs = make(case, heads=16)
    out, lse = decode_v32(*inputs)
    want, want_lse = decode_v32_reference(*inputs)
    assert out.shape == (*inputs[0].shape[:2], 512) and out.dtype == torch.bfloat16
    assert error(out, want) <= TOLERANCE and lse_error(lse, want_lse) <= 1e-3


def test_the_rotary_part_weighs_in_scores_and_not_in_values():
    q, cache, indices, lengths, sink, scale = make("random", heads=16)
    other = cache.clone()
    other[:, 528:] = 0
    out, _ = decode_v32_reference(q, cache, indices, lengths, sink, scale)
    flat = q.clone()
    flat[:, :, 512:] = 0
    without, _ = decode_v32_reference(flat, cache, indices, lengths, sink, scale)
    assert error(decode_v32_reference(q, other, indices, lengths, sink, scale)[0], without) < 1e-9
    assert error(out, without) > 0.1


def test_operator_is_checked_and_bad_arguments_are_one_line():
    inputs = make("random", heads=16)
    torch.library.opcheck(torch.ops.capturebook.sparse_mla_decode_v32, inputs)
    step = torch.compile(lambda *a: decode_v32(*a, inputs[5]), backend="eager", fullgraph=True)
    assert torch.equal(step(*inputs[:5])[0], decode_v32(*inputs)[0])
    with pytest.raises(ValueError, match=r"^cache: torch.uint8 \(300, 655\) on cpu; allowed: contiguous torch.uint8"):
        decode_v32(inputs[0], torch.zeros(300, 655, dtype=torch.uint8), *inputs[2:])
    with pytest.raises(ValueError, match=r"^q: torch.bfloat16 \(3, 16, 512\); allowed: bf16 \[batch, heads, 576\]$"):
        decode_v32(inputs[0][:, :, :512], *inputs[1:])


@interpreter_runs
def test_interpreted_kernel_against_float64():
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("v32_cases.py"))]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert {case for case in found} == {"random", "peaked", "edges"}
    assert all(result["error"] <= 1e-5 and result["lse_error"] <= 1e-5 for result in found.values()), found
    assert max(result["splits"] for result in found.values()) > 1


@pytest.mark.parametrize("sm, limit", [(80, 166_912), (90, 232_448), (100, 232_448), (120, 101_376)])
def test_compiles_without_spills_and_fits(sm, limit):
    import triton

    from capturebook.kernels.sparse_mla_v32.mma import mma_v32_kernel
    from capturebook.kernels.sparse_mla_v32.op import CONFIG
    from capturebook.measure import crosscompile
    from capturebook.measure.specialise import specialise

    q, cache, indices, lengths, sink, scale = make("random", heads=16)
    args = dict(q=q, cache=cache, indices=indices, lengths=lengths, sink=sink, scale=scale, width=indices.shape[1])
    args |= dict(out=torch.empty(3, 4, 16, 512), lse=torch.empty(3, 4, 16), HEADS=16, FINAL=False, FP32=False)
    sizes = {name: CONFIG[name] for name in ("BLOCK_H", "BLOCK_N")}
    config = triton.Config(sizes, num_warps=CONFIG["num_warps"], num_stages=CONFIG["num_stages"])
    row = crosscompile.compile_row(
        specialise(mma_v32_kernel, args | dict(E4M3=sm >= 89, PDL=sm >= 90, ASM=True), config, sm), sm
    )
    assert row["spills"] == 0 and row["shared"] <= limit and row["instructions"]["HMMA"] > 0
