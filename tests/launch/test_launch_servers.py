"""Servers: a real `transformers serve` on the CPU, start-up logs as servers write them, metrics, sweeps."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import launch_bench
import pytest
from launch_bench import stage

from capturebook import launch as launching
from capturebook.launch import adapters, metrics, traffic
from capturebook.launch.follow import Following
from capturebook.launch.logmap import meaning

here_only = pytest.mark.parametrize("bench", ["here"], indirect=True)
CAPTURE_LOG = """\
[2026-01-01 00:00:00 TP0] Load weight begin. avail mem=139.00 GB
[2026-01-01 00:00:30 TP0] Load weight end. elapsed=30.0 s
[2026-01-01 00:00:31 TP0] Capture target decode CUDA graph begin. backend=fa3
[2026-01-01 00:00:33 TP0] Scheduler hit an exception: Traceback (most recent call last):
Exception: Capture cuda graph failed: CUDA error: dependency created on uncaptured work in another stream
Possible solutions:
[2026-01-01 00:00:33] Received sigquit from a child process. It usually means the child failed.
"""


@pytest.fixture(scope="session")
def serving(tmp_path_factory) -> tuple[str, Path]:
    """An interpreter with transformers[serving], and a tiny model's folder."""
    python = os.environ.get("CAPTUREBOOK_SERVING_PYTHON", sys.executable)
    if python == sys.executable and not all(map(importlib.util.find_spec, ("transformers", "uvicorn", "fastapi"))):
        pytest.skip("needs pip install -e '.[serving]', or CAPTUREBOOK_SERVING_PYTHON that has transformers[serving]")
    model = tmp_path_factory.mktemp("tiny") / "model"
    subprocess.run([python, Path(__file__).with_name("tiny_model.py"), model], check=True, capture_output=True)
    return python, model


def serve(bench, serving, *args, **fields):
    python, model = serving
    command = [f"{Path(python).parent}/transformers", "serve", "--port", "{port}", "--device", "cpu", *args]
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(bench.root / "hub")}
    fields = {"port": "auto", "adapter": "transformers", "deadline": 120, "env": env, **fields}
    return bench.launch(command=command, files={"model": str(model)}, **fields)


@launch_bench.ssh_only
def test_a_real_transformers_serve_generates_a_token(bench, serving):
    record = serve(bench, serving, "{folder}/model")
    assert record.status == "pass", record.reason
    evidence = stage(record, "ready")["evidence"]
    assert evidence["owner_is"] == "the program" and evidence["answer_names_the_run"] is True
    phases = [entry["phase"] for entry in record.payload["timeline"]]
    assert phases[0] == "start" and "ready" in phases
    swept = launching.sweep(record.run, (1, 2), requests=3, output_tokens=6, on_event=bench.events.append)
    assert swept.status == "pass", swept.reason
    for row, many in zip(swept.payload["sweep"], (1, 2), strict=True):
        assert row["concurrency"] == many and row["requests"] == 3
        # The random model may stop early, and never says more than it was asked for.
        assert 3 <= row["tokens"] <= 18 and row["tokens_per_s"] > 0 and row["ttft_ms_p50"] > 0
    assert swept.payload["metrics"] == {"none": "`transformers serve` has no /metrics"}
    assert launching.stop(record.run, bench.events.append).status == "pass"
    ended = launching.sweep(record.run, (1,), requests=1, on_event=bench.events.append)
    assert ended.status == "not_run" and "it has ended" in ended.reason


@here_only
def test_a_server_without_a_model_says_ok_and_is_not_ready(bench, serving, monkeypatch):
    wait, met = Following.wait, '"GET /v1/models HTTP/1.1" 200'

    def late(following):
        """Its deadline comes once it has answered for a while, however long its start took."""
        state = wait(following)
        if sum(met in line for line in following.log.last) > 5:
            following.deadline = 0.0
        return state

    monkeypatch.setattr(Following, "wait", late)
    record = serve(bench, serving)
    assert (record.status, record.payload["class"]) == ("timeout", "C10"), record.reason
    assert "/v1/models names 0 models" in record.reason
    # The server did answer, and said it was up: its own log shows our requests.
    assert any(met in line for line in launch_bench.log_of(bench, record))


def test_a_servers_capture_failure_is_walked_to_its_cuda_error(bench):
    bench.write("log.txt", CAPTURE_LOG)
    record = bench.launch(
        script=str(bench.write("server.sh", "cat log.txt; sleep 30\n")),
        files=["log.txt"],
        adapter="sglang",
        port="auto",
    )
    assert record.status == "fail" and record.payload["failed_stage"] == "ready"
    assert (record.root.code, record.root.name) == (905, "cudaErrorStreamCaptureIsolation")
    assert record.payload["classes_of_error"] == "K3 or B5"
    phases = [entry["phase"] for entry in record.payload["timeline"]]
    assert phases == ["start", "load", "memory", "capture"]


@pytest.mark.parametrize(
    ("line", "klass", "code"),
    [
        ("RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA", "C16", None),
        ("ValueError: @jit functions should be defined in a Python file", "C15", None),
        ("Capture cuda graph failed: CUDA error: operation not permitted when stream is capturing", "", 900),
        ("[Errno 98] error while attempting to bind on address: address already in use", "C9", None),
        ("CUDA out of memory. Tried to allocate 2 GiB", "", 2),
        ("all is well", None, None),
    ],
)
def test_what_lines_mean(line, klass, code):
    said = meaning(line)
    assert (said.klass if said else None, said.code if said else None) == (klass, code)


def test_adapters_add_the_name_of_the_run_once():
    command = ["python", "-m", "sglang.launch_server", "--model-path", "m"]
    named = adapters.SGLANG.command(command, "n0")
    assert named == [*command, "--served-model-name", "capturebook-n0"]
    assert adapters.VLLM.command([*command, "--served-model-name=mine"], "n0")[-1] == "--served-model-name=mine"
    assert adapters.TRANSFORMERS.command(command, "n0") == command
    assert adapters.names_the_run("capturebook-n0", "n0", "") and not adapters.names_the_run("mine", "n0", "/f")
    assert adapters.names_the_run("/f/model", "n0", "/f") and not adapters.names_the_run("/fun/model", "n0", "/f")


@pytest.fixture
def prometheus():
    """Serves what prometheus_client itself renders: our reading's independent truth."""
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    server, thread = client.start_http_server(0, addr="127.0.0.1", registry=registry)
    yield client, registry, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_metrics_are_read_as_prometheus_writes_them(prometheus):
    client, registry, base = prometheus
    labels = ["model_name", "tp_rank", "dp_rank"]
    tokens = client.Counter("sglang:generation_tokens", "tokens", labels, registry=registry)
    # A label's value may hold braces, quotes and spaces; tensor ranks are twins, data-parallel ranks are not.
    for tp, dp, count in (("0", "0", 5), ("1", "0", 5), ("0", "1", 7)):
        tokens.labels('a {"b"} c, tp_rank="9"', tp, dp).inc(count)
    usage = client.Gauge("sglang:token_usage", "share", ["dp_rank"], registry=registry)
    usage.labels("0").set(0.25)
    usage.labels("1").set(0.75)
    client.Gauge("sglang:gen_throughput", "tok/s", registry=registry).set(float("nan"))
    client.Histogram("sglang:time_to_first_token_seconds", "s", registry=registry).observe(0.25)
    values = metrics.scrape(adapters.SGLANG, base)
    assert values == {"generated_tokens": 12, "cache_usage": 0.75, "ttft_sum_s": 0.25, "ttft_count": 1}


def test_why_there_are_no_metrics_is_said(prometheus):
    client, registry, base = prometheus
    with pytest.raises(metrics.NoMetrics, match="has no /metrics"):
        metrics.scrape(adapters.TRANSFORMERS, base)
    with pytest.raises(metrics.NoMetrics, match="none of .* has a name we know; vLLM"):
        metrics.scrape(adapters.VLLM, base)
    with pytest.raises(metrics.NoMetrics, match="Connection refused"):
        metrics.scrape(adapters.VLLM, "http://127.0.0.1:1")


def test_percentiles_are_samples():
    row = traffic.percentiles("t", [i / 1000 for i in range(100, 0, -1)])
    assert (row["t_p50"], row["t_p90"], row["t_p99"]) == (50.0, 90.0, 99.0) and row["t_mean"] == 50.5
    assert traffic.percentiles("t", [])["t_p50"] is None


@here_only
def test_a_sweep_needs_an_adapter_and_sane_sizes(bench):
    record = bench.script("echo RESULT\n", result={"log": "RESULT"})
    with pytest.raises(launching.LaunchError, match="has no adapter"):
        launching.sweep(record.run)


def test_ranks_priorities_and_shares_are_not_counted_twice():
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    labels = ["model_name", "tp_rank", "dp_rank", "priority"]
    running = client.Gauge("sglang:num_running_reqs", "requests", labels, registry=registry)
    usage = client.Gauge("sglang:token_usage", "share", labels, registry=registry)
    for dp in "01":
        for tp in "01":
            running.labels('a "} 9 model\\', tp, dp, "").set(4)
            running.labels('a "} 9 model\\', tp, dp, "1").set(3)
            usage.labels('a "} 9 model\\', tp, dp, "").set(0.25 + 0.5 * int(dp))
    values = metrics.parse(client.generate_latest(registry).decode())
    # Two data-parallel ranks with four requests each.
    assert values == {"sglang:num_running_reqs": 8, "sglang:token_usage": 0.75}


@here_only
def test_a_progress_bar_that_hangs_is_placed_in_its_phase(bench):
    # As tqdm writes: over its line, which ends only when all is done.
    text = "printf 'Model loading took 5 GiB\\n\\rCapturing CUDA graphs: 0%%\\rCapturing CUDA graphs: 1%%'; sleep 60\n"
    record = bench.script(text, adapter="vllm", port="auto", deadline=1.5)
    assert record.status == "timeout" and "in phase capture" in record.reason
