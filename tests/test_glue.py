"""mHC on a CPU: reference by loops and by hand, twin, operators, cost; all of the glue's kernels compiled."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch

from capturebook.kernels.glue import mhc_post, mhc_post_reference, mhc_pre, mhc_pre_reference
from capturebook.kernels.glue.cost import mhc_cost
from capturebook.kernels.glue.examples import examples
from capturebook.kernels.glue.inputs import make_inputs
from capturebook.measure import own_step
from capturebook.measure.crosscompile import compile_row
from capturebook.measure.specialise import specialise
from capturebook.subjects import glue
from test_kernels_interpret import pytestmark as interpreter_runs

D = 1024


def by_loops(streams, projection, scale, base):
    """One token in plain Python, from the paper's formulas: weights before and after, and the matrix."""
    flat = [float(x) for x in streams.flatten()]
    norm = 1 / math.sqrt(sum(x * x for x in flat) / len(flat) + 1e-6)
    mixes = [norm * sum(x * float(w) for x, w in zip(flat, row)) for row in projection]
    scaled = [m * float(scale[min(i // 4, 2)]) + float(b) for i, (m, b) in enumerate(zip(mixes, base))]
    before = [1 / (1 + math.exp(-x)) + 1e-6 for x in scaled[:4]]
    after = [2 / (1 + math.exp(-x)) for x in scaled[4:8]]
    rows = [[math.exp(x) for x in scaled[8 + 4 * i : 12 + 4 * i]] for i in range(4)]
    rows = [[x / sum(row) + 1e-6 for x in row] for row in rows]
    for step in range(39):  # columns, then 19 times rows and columns
        if step % 2 == 0:
            sums = [sum(row[j] for row in rows) + 1e-6 for j in range(4)]
            rows = [[x / s for x, s in zip(row, sums)] for row in rows]
        else:
            rows = [[x / (sum(row) + 1e-6) for x in row] for row in rows]
    return before, after, rows


def test_reference_by_loops():
    streams, projection, scale, base, out = make_inputs(1, 2, 16)
    collapsed, after, comb = mhc_pre_reference(streams, projection, scale, base)
    new = mhc_post_reference(streams, out, after, comb)
    for token in range(2):
        before, behind, rows = by_loops(streams[token], projection, scale, base)
        assert torch.allclose(after[token], torch.tensor(behind, dtype=torch.float64), atol=1e-12)
        assert torch.allclose(comb[token], torch.tensor(rows, dtype=torch.float64), atol=1e-12)
        x, y = streams[token].double().tolist(), out[token].double().tolist()
        want = [sum(before[k] * x[k][d] for k in range(4)) for d in range(16)]
        assert torch.allclose(collapsed[token], torch.tensor(want, dtype=torch.float64), atol=1e-12)
        want = [[behind[i] * y[d] + sum(rows[j][i] * x[j][d] for j in range(4)) for d in range(16)] for i in range(4)]
        assert torch.allclose(new[token], torch.tensor(want, dtype=torch.float64), atol=1e-12)


def test_the_matrix_is_doubly_stochastic_and_not_symmetric():
    _, _, comb = mhc_pre_reference(*make_inputs(2, 8, D)[:4])
    assert torch.allclose(comb.sum(1), torch.ones(8, 4).double(), atol=1e-5)
    assert torch.allclose(comb.sum(2), torch.ones(8, 4).double(), atol=1e-2)
    assert (comb - comb.transpose(1, 2)).abs().max() > 0.1, "else the transposition would not be tested"


def test_operators_on_a_cpu():
    *tensors, out = make_inputs(3, 5, D)
    collapsed, after, comb = mhc_pre(*tensors)
    assert (collapsed.dtype, after.dtype, comb.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    want, want_after, want_comb = mhc_pre_reference(*tensors)
    assert (collapsed - want).abs().max() <= 2**-8 * want.abs().max()
    assert torch.allclose(after.double(), want_after, atol=1e-5) and torch.allclose(comb.double(), want_comb, atol=1e-5)
    new, want_new = mhc_post(tensors[0], out, after, comb), mhc_post_reference(tensors[0], out, want_after, want_comb)
    assert (new - want_new).abs().max() <= 2**-8 * want_new.abs().max()
    torch.library.opcheck(torch.ops.capturebook.mhc_pre, tuple(tensors))
    torch.library.opcheck(torch.ops.capturebook.mhc_post, (tensors[0], out, after, comb))


def test_operators_compile_without_a_graph_break():
    def step(streams, projection, scale, base, out):
        collapsed, after, comb = mhc_pre(streams, projection, scale, base)
        return mhc_post(streams, out + collapsed, after, comb)

    torch._dynamo.reset()
    explained = torch._dynamo.explain(step)(*make_inputs(4, 2, D))
    assert (explained.graph_count, explained.graph_break_count) == (1, 0)


@pytest.mark.parametrize(
    "name, change, allowed",
    [
        ("streams", lambda t: t[:, :3], "[batch, 4, a multiple of 1024]"),
        ("streams", lambda t: t[:, :, :512], "[batch, 4, a multiple of 1024]"),
        ("streams", lambda t: t.float(), "torch.bfloat16"),
        ("projection", lambda t: t.bfloat16(), "torch.float32"),
        ("projection", lambda t: t.T.contiguous().T, "contiguous"),
        ("base", lambda t: t[:8], "[24]"),
        ("scale", lambda t: t[:2], "[3]"),
    ],
)
def test_bad_arguments_are_named_in_one_line(name, change, allowed):
    arguments = dict(zip(("streams", "projection", "scale", "base"), make_inputs(0, 2, D)))
    arguments[name] = change(arguments[name])
    with pytest.raises(ValueError) as caught:
        mhc_pre(**arguments)
    text = str(caught.value)
    assert text.startswith(f"{name}: ") and allowed in text and "\n" not in text


def test_cost_by_hand():
    # 64 tokens: streams of 2 MiB read twice and written once, the projection of 1.5 MiB, two rows of 8 KiB a token
    cost = mhc_cost(64)
    assert cost.bytes == 3 * 2**21 + 24 * 16384 * 4 + 64 * 2 * 8192 + 64 * 2 * 80
    assert cost.flops == 64 * 16384 * (48 + 2 + 10)


def test_the_subject_is_right_and_a_matrix_not_transposed_is_not():
    step = glue.build(batch=3, hidden=D)
    assert [own_step.check(own_step.Variant(n, own_step.Side(s), s.fn), step, step.make_inputs(1), n)[1].ok
            for n, s in (("step", step), ("twin", step.twin))] == [True, True]  # fmt: skip
    streams, out = step.make_inputs(2)
    assert step.cost(streams, out) == (mhc_cost(3, D).bytes, mhc_cost(3, D).flops)
    collapsed, new = step.fn(streams, out)
    want = step.reference(streams, out)[1]
    _, projection, scale, base, _ = make_inputs(0, 3, D)
    _, after, comb = mhc_pre(streams, projection, scale, base)
    turned = mhc_post(streams, out, after, comb.transpose(1, 2).contiguous())
    limit = step.tolerance * want.abs().max()
    assert (new - want).abs().max() <= limit < (turned - want).abs().max()


INTERPRETED = """
import json, torch
from capturebook.kernels.glue import KERNELS, launch, mhc_post_reference, mhc_pre_reference
from capturebook.kernels.glue.inputs import make_inputs

torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN
found = {}
for name, batch, d in (("part of a tile", 3, 1024), ("two tiles, two parts", 17, 2048)):
    *tensors, out = make_inputs(5, batch, d)
    kernels = (KERNELS["project_kernel"], KERNELS["collapse_kernel"])
    got = launch.pre(kernels, tensors, None, torch.float32, e4m3=False, dot_fp32=True)
    want = mhc_pre_reference(*tensors)
    found[name] = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(got, want)]
    streams, out = tensors[0].float(), out.float()
    new = launch.post(KERNELS["expand_kernel"], (streams, out, *got[1:]))
    wanted = mhc_post_reference(streams, out, *want[1:])
    found[name].append(float((new - wanted).abs().max() / wanted.abs().max()))
print(json.dumps(found))
"""


@interpreter_runs
def test_interpreted_kernels_against_float64():
    """collapsed, after, comb, new streams: all in fp32 there."""
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", INTERPRETED], env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len(found) == 2 and all(len(errors) == 4 and max(errors) <= 1e-6 for errors in found.values()), found


@pytest.mark.parametrize("sm", [90, 120])
def test_kernels_compile_without_spills(sm):
    for example in examples(sm):
        assert set(example.args) == {p.name for p in example.kernel.params}
        row = compile_row(specialise(example.kernel, example.args, example.config, sm), sm)
        assert row["fits"] and row["spills"] == row["stack"] == 0, example.name
        assert ("HMMA" in row["instructions"]) == ("project" in example.name), example.name
