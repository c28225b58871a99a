"""What differs between servers: how to ask them for one token, what their start-up logs say, how metrics are named."""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from .ready import NotYet, fetch

Name = Literal["sglang", "vllm", "transformers"]


@dataclass(frozen=True)
class Adapter:
    """A server with an OpenAI-compatible /v1/completions.

    `name_flag` is the option that names the model in answers, "" where there is none. `phases` are patterns of the
    start-up log in their order, `failed` patterns after which it does not come up. `metrics` maps our names to those
    of its /metrics (Prometheus text); `no_metrics` says why there are none. `proven` says what it was run against.
    `load_options` go into requests that measure: as many tokens as asked for, and their count in the stream.
    """

    name: str
    name_flag: str
    phases: dict[str, str]
    failed: tuple[str, ...]
    metrics: dict[str, str]
    no_metrics: str
    proven: str
    load_options: dict[str, Any]

    def command(self, command: list[str], nonce: str) -> list[str]:
        """The command with the option that makes answers name this launch, unless it names the model itself."""
        if not self.name_flag or any(word.split("=")[0] == self.name_flag for word in command):
            return command
        return [*command, self.name_flag, f"capturebook-{nonce}"]

    def one_token(self, base: str, model: str | None, key: str = "", seconds: float = 20.0) -> str:
        """Ask for one token. Returns the model's name as the answer has it. Raises NotYet when no token came."""
        name = model or self.served(base, key, seconds)
        body = {"model": name, "prompt": "1 2 3", "max_tokens": 1, "temperature": 0}
        answer = fetch(f"{base}/v1/completions", json.dumps(body), seconds, key)
        try:
            got = json.loads(answer)
            tokens = got["usage"]["completion_tokens"]
        except (ValueError, KeyError, TypeError):
            raise NotYet(f"an answer without usage: {answer[:120]!r}") from None
        if not isinstance(tokens, int) or tokens < 1:
            raise NotYet(f"an answer of no tokens: completion_tokens {tokens!r:.40}")
        return str(got.get("model", ""))

    def served(self, base: str, key: str = "", seconds: float = 20.0) -> str:
        """The model that the server says it serves. Raises NotYet when it names none or several."""
        answer = fetch(f"{base}/v1/models", None, seconds, key)
        try:
            names = [entry["id"] for entry in json.loads(answer)["data"]]
        except (ValueError, KeyError, TypeError):
            raise NotYet(f"/v1/models answers {answer[:120]!r}; give `model`") from None
        if len(names) != 1:
            raise NotYet(f"/v1/models names {len(names)} models; give `model`")
        return names[0]


# Lines of sglang 0.5.23: model_runner.py, cuda_graph_setup.py, decode_cuda_graph_runner.py, http_server.py,
# scheduler.py, engine.py; metric names: observability/metrics_collector.py.
SGLANG = Adapter(
    name="sglang",
    name_flag="--served-model-name",
    phases={
        "load": r"Load weight begin",
        "memory": r"Load weight end",
        "capture": r"Capture .*CUDA graph begin|Capture cuda graph begin",
        "captured": r"Capture .*CUDA graph end|Capture cuda graph end",
        "warm-up": r"Uvicorn running on|Application startup complete",
        "ready": r"The server is fired up and ready to roll",
    },
    failed=(r"Received sigquit from a child process", r"scheduler died during initialization"),
    metrics={
        "running": "sglang:num_running_reqs",
        "queued": "sglang:num_queue_reqs",
        "generated_tokens": "sglang:generation_tokens_total",
        "prompt_tokens": "sglang:prompt_tokens_total",
        "tokens_per_s": "sglang:gen_throughput",
        "cache_usage": "sglang:token_usage",
        "ttft_sum_s": "sglang:time_to_first_token_seconds_sum",
        "ttft_count": "sglang:time_to_first_token_seconds_count",
        "in_graph": "sglang:is_cuda_graph",
    },
    no_metrics="sglang serves /metrics only with --enable-metrics",
    proven="from the source of sglang 0.5.23; not yet run against a real server",
    load_options={"ignore_eos": True, "temperature": 0, "stream_options": {"include_usage": True}},
)

# Lines: vllm/v1/worker/gpu_model_runner.py, v1/engine/core_client; metric names: vllm/v1/metrics/loggers.py.
VLLM = Adapter(
    name="vllm",
    name_flag="--served-model-name",
    phases={
        "load": r"Starting to load model",
        "compile": r"torch\.compile takes|Dynamo bytecode transform time|Model loading took",
        "capture": r"Capturing CUDA graph",
        "captured": r"Graph capturing finished in",
        "ready": r"Application startup complete",
    },
    failed=(r"EngineCore failed to start", r"Engine core initialization failed"),
    metrics={
        "running": "vllm:num_requests_running",
        "queued": "vllm:num_requests_waiting",
        "generated_tokens": "vllm:generation_tokens_total",
        "prompt_tokens": "vllm:prompt_tokens_total",
        "cache_usage": "vllm:kv_cache_usage_perc",
        "ttft_sum_s": "vllm:time_to_first_token_seconds_sum",
        "ttft_count": "vllm:time_to_first_token_seconds_count",
    },
    no_metrics="vLLM serves /metrics unless it was told not to",
    proven="from vLLM's source; not yet run against a real server",
    load_options={"ignore_eos": True, "temperature": 0, "stream_options": {"include_usage": True}},
)

TRANSFORMERS = Adapter(
    name="transformers",
    name_flag="",
    phases={"load": r"Loading (weights|checkpoint)|Loading .*model", "ready": r"Application startup complete"},
    failed=(r"Application startup failed",),
    metrics={},
    no_metrics="`transformers serve` has no /metrics",
    proven="run for real on a CPU, with a tiny random model",
    load_options={"temperature": 0},
)

ADAPTERS = {adapter.name: adapter for adapter in (SGLANG, VLLM, TRANSFORMERS)}


def key_of(command: list[str], env: dict[str, str]) -> str:
    """What a server was told to take as proof of who asks (sglang, vLLM: --api-key; VLLM_API_KEY); "" for nothing."""
    for word, following in zip(command, [*command[1:], ""]):
        if word.partition("=")[0] == "--api-key":
            return word.partition("=")[2] or following
    return env.get("VLLM_API_KEY", "")


def names_the_run(model: str, nonce: str, folder: str) -> bool:
    """Whether the model's name in an answer is this launch's own: it holds the nonce, or a path in its folder."""
    return nonce in model or bool(folder) and re.match(re.escape(folder) + r"(/|$)", model) is not None
