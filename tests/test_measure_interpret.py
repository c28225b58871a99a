"""The interpreter job: real kernels in processes of their own, and what it says of a wrong one."""

from types import SimpleNamespace

import numpy
import pytest
import triton

from capturebook.measure import interpret
from capturebook.probes import ProbePool

OLD = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7) and tuple(
    map(int, numpy.__version__.split(".")[:2])
) >= (2, 4)


@pytest.mark.skipif(OLD, reason=f"the interpreter of triton {triton.__version__} cannot loop with numpy >= 2.4")
def test_the_fp8_kernels_of_v4_and_v32_agree_with_float64(tmp_path, probe_server):
    """Both in a run's own processes; those of bf16 are in test_notebooks_run's run, and more shapes in
    test_kernels_interpret."""
    run = SimpleNamespace(path=tmp_path, name="test", nonce="f00d", append=lambda record: None)
    with ProbePool(run, on_event=lambda text: None) as pool:
        planned = interpret.plan_interpret(["mma"], cache="fp8")
        records = pool.run([planned[1], planned[2]])
    assert len(planned) == 4 and [(r.status, r.reason) for r in records] == [("pass", "")] * 2
    assert [r.payload["cache"] for r in records] == ["fp8", "v32"]
    assert [r.payload["splits"] > 1 for r in records] == [False, True]
    assert all(0 < r.payload["error"] < interpret.TOLERANCE for r in records)


def context(probe):
    return SimpleNamespace(probe=probe, args=probe.args, seed=probe.seed, stage=lambda name: None)


def test_without_the_variable_it_says_so():
    with pytest.raises(RuntimeError, match="^TRITON_INTERPRET: not set"):
        interpret.run(context(interpret.plan_interpret(["mma"])[1]))


def test_a_wrong_kernel_is_wrong(monkeypatch):
    from capturebook.kernels import sparse_mla
    from capturebook.kernels.sparse_mla import interpret as theirs

    def forgets_the_sink(kernel, tensors, scale, config):
        *rest, sink = tensors
        return sparse_mla.decode_reference(*rest, sink - 20.0, scale)

    monkeypatch.setattr(theirs, "interpret", forgets_the_sink)
    result = interpret.run(context(interpret.plan_interpret(["mma"])[1]))
    assert result["status"] == "wrong" and result["reason"].startswith("mma differs from float64: out ")
    assert [check["ok"] for check in result["checks"]] == [False, True]
