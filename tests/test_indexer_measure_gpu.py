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
from capturebook.report.readable import unreadable

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


@pytest.mark.parametrize(
    ("tuning", "key_format"), [("live", ["bf16"]), ("pinned", ["bf16", "fp8"])], ids=["live", "pinned, both formats"]
)
def test_calls_and_kernels_alone_are_checked_then_timed(pool, tuning, key_format):
    params = Params(
        subject=INDEXER,
        kernels=["stock", "bounded"],
        options={"key_format": key_format, "lengths": ["full", "near"], "tuning": tuning},
        batches=[8],
        contexts=[8192],
        max_contexts=[32768],
        samples=5,
        deadline=180.0,
    )
    rates = {"tb_s": 4.63, "tflops": 795.0, "source": "test"}
    records = pool.run(indexer_sweep.plan_indexer_sweep(params, rates))
    assert [record.payload["key_format"] for record in records] == key_format
    for record in records:
        assert record.status == "pass", record.reason or record.root
        assert len(record.checks) == 8 and all(check.ok for check in record.checks)
        assert {len(us) for us in record.samples.values()} == {5} and not unreadable(record)
        points = {(p["variant"], p["lengths"]): p for p in sweep_points([record])}
        assert len(points) == 8 and all(p["us"] and p["left_out"] == [] for p in points.values())
        for lengths, keys in (("full", 8 * 2048), ("near", points["bounded", "near"]["keys"])):
            bounded = points["bounded", lengths]
            assert bounded["keys"] == keys and 7 / 8 * 8 * 2048 <= keys <= 8 * 2048
            assert bounded["scratch_a_row"] == 4 * 8192, "a score for each key that there is room for, and nothing else"
            assert 0 < points["scores only", lengths]["read_share"] < 1.2
            assert "BLOCK=" in bounded["config"] and "PROGRAMS=" in bounded["config"]
            assert bounded["median_us"] * bounded["tokens_per_second"] == pytest.approx(8e6)
