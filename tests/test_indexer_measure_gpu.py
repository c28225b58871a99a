"""The indexer on a GPU as a subject and in the sweep: captured, compiled, its lengths growing; timed. About a minute.

python -m pytest -m gpu tests/test_indexer_measure_gpu.py
"""

import json
from types import SimpleNamespace

import pytest

from capturebook import cli
from capturebook.measure import indexer_sweep
from capturebook.measure.rows import sweep_points
from capturebook.params import Params
from capturebook.params.declared import INDEXER
from capturebook.probes import ProbePool

pytestmark = [pytest.mark.gpu, pytest.mark.alone]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    run = SimpleNamespace(path=tmp_path_factory.mktemp("run"), name="test", nonce="f00d", append=lambda record: None)
    with ProbePool(run, on_event=lambda text: None) as pool:
        yield pool


# Live, each configuration of two kernels is compiled and timed in every process: once is enough of that.
@pytest.mark.parametrize(
    ("options", "question"),
    [({}, ""), ({"kernel": "stock"}, ""), ({"key_format": "fp8"}, "tuning=pinned,compile=default")],
    ids=["bf16, live", "stock", "fp8, pinned, compiled"],
)
def test_it_survives_capture_and_compilation(capsys, tmp_path, options, question):
    words = [f"--option={name}={json.dumps(value)}" for name, value in options.items()]
    folder = str(tmp_path / "run")
    status = cli.main(["probe", INDEXER, *words, "--question", question, "--json", "--run-dir", folder])
    out, err = capsys.readouterr()
    assert status == 0, err
    found = json.loads(out)
    assert (found["owner"], found["status"]) == ("none", "pass"), found["sentence"]


@pytest.mark.parametrize("tuning", ["live", "pinned"])
@pytest.mark.parametrize("key_format", ["bf16", "fp8"])
def test_a_sweep_point_is_checked_then_timed(pool, tuning, key_format):
    params = Params(
        subject=INDEXER,
        kernels=["stock", "bounded"],
        options={"key_format": key_format},
        batches=[8],
        contexts=[8192],
        max_contexts=[32768],
        samples=5,
        deadline=180.0,
    )
    rates = {"tb_s": 1.0, "tflops": 100.0, "source": "test"}
    (record,) = pool.run(indexer_sweep.plan_indexer_sweep(params, rates, tuning=tuning))
    assert record.status == "pass", record.reason or record.root
    assert [(c.call, c.output, c.ok) for c in record.checks] == [("stock", "out", True), ("bounded", "out", True)]
    assert {name: len(us) for name, us in record.samples.items()} == {"stock": 5, "bounded": 5}
    assert record.payload["left_out"] == []
    points = sweep_points([record])
    assert [(p["variant"], p["max_context"]) for p in points] == [("stock", 32768), ("bounded", 32768)]
    assert "BLOCK=" in points[1]["config"] and "PROGRAMS=" in points[1]["config"]
    assert all(p["median_us"] * p["tokens_per_second"] == pytest.approx(8e6) for p in points)
