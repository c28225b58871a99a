"""Sound steps, each with something that invites a false accusation. `symptom` says what that is."""

from .case import Case
from .cases_kernel import COLD, UNCOMPILED

DEFAULT = ""


def clean(name: str, step: str, hazard: str, question: str = DEFAULT, **more) -> Case:
    """A case without a class; cheap if it asks nothing of the compiler and needs no environment of its own."""
    slow = not question or "compile=" in question.replace(UNCOMPILED, "") or "env" in more
    return Case(f"clean_{name}", step, None, hazard, question=question, cost=2 if slow else 1, **more)


STREAMS = [
    clean("joined_by_stream", "clean_streams:joined_by_stream", "a side stream, joined; compiled, the overlap is lost"),
    clean("joined_by_event", "clean_streams:joined_by_event", "a side stream, joined by events"),
    clean("three_streams", "clean_streams:three_streams", "a side stream that forks another", UNCOMPILED),
    clean("break_with_events", "clean_streams:break_with_events", "a graph break between fork and join",
          "compile=aot_eager"),
    clean("fork_eager_backend", "b5_streams_dropped:fork_compiled_join_eager", "fork compiled by Dynamo alone",
          "compile=eager"),
    clean("event_never_recorded", "clean_streams:event_never_recorded", "a wait on an event of nobody's", UNCOMPILED),
    clean("external_event", "clean_streams:external_event", "a wait on work outside the capture, by an external event",
          UNCOMPILED),
    clean("pinned_copy", "clean_streams:pinned_copy", "a host-to-device copy in the step", UNCOMPILED),
    clean("metrics_to_host", "clean_streams:metrics_to_host", "an asynchronous copy into pinned memory", UNCOMPILED),
    clean("caller_synchronises", "clean_streams:caller_synchronises", "synchronisation and .item() between steps"),
    clean("default_generator", "clean_streams:default_generator", "random numbers that differ in every replay",
          UNCOMPILED),
    clean("gradients", "clean_streams:gradients", "autograd in the capture", UNCOMPILED),
    clean("projection_in_place", "clean_streams:projection_in_place", "no output at all, only state", cpu=True),
]  # fmt: skip

KERNELS = [
    clean("cold_kernel", "clean_kernels:plain", "Triton compiles and loads in the capture", COLD),
    clean("autotuned", "clean_kernels:autotuned", "an autotuned kernel, tuned in the warm-up"),
    clean("autotuned_pinned_cold", "clean_kernels:autotuned", "an autotuned kernel, cold, with pinned tuning",
          f"{COLD},tuning=pinned"),
    clean("autotuned_cached_cold", "clean_kernels:autotuned", "an autotuned kernel, cold, tuned by another process",
          f"{COLD},tuning=cached"),
    clean("in_place", "clean_kernels:in_place", "an autotuned kernel that writes its argument"),
    clean("accumulator", "clean_kernels:accumulator", "an autotuned kernel that adds atomically", UNCOMPILED),
    clean("custom_operator", "clean_kernels:custom_operator", "a kernel that the compiler cannot see"),
    clean("mutating_operator", "clean_kernels:mutating_operator", "an operator that writes its argument"),
    clean("triton_operator", "clean_kernels:triton_operator", "an autotuned kernel that the compiler tunes itself"),
]  # fmt: skip

TORCH = [
    clean("cache_in_place", "clean_torch:cache_in_place", "a KV cache that changes with every call", cpu=True),
    clean("module", "clean_torch:module", "an nn.Module as it comes", cpu=True),
    clean("dict_outputs", "clean_torch:dict_outputs", "a dictionary of outputs, one a view of another", UNCOMPILED,
          cpu=True),
    clean("tuple_of_dtypes", "clean_torch:tuple_of_dtypes", "integer and boolean outputs", UNCOMPILED, cpu=True),
    clean("attention", "clean_torch:attention", "bfloat16, and a library's attention", UNCOMPILED, cpu=True),
    clean("lengths_on_device", "clean_torch:lengths_on_device", "lengths that vary with the seed", UNCOMPILED,
          cpu=True),
    clean("residual_in_place", "clean_torch:residual_in_place", "an accumulated residual", UNCOMPILED, cpu=True),
    clean("ring_of_buffers", "clean_torch:ring_of_buffers", "two buffers that swap roles", UNCOMPILED, cpu=True),
    clean("not_finite", "clean_torch:not_finite", "infinities that belong there", UNCOMPILED, cpu=True),
    clean("weights_by_copy", "clean_torch:weights_by_copy", "weights updated between replays", UNCOMPILED, cpu=True),
    clean("plain_callable", "clean_torch:plain_callable", "a function without a Step", UNCOMPILED, cpu=True),
    clean("trees_uncaptured", "b3_b4_trees_libraries:projection", "cudagraph trees without an outer capture",
          "compile=reduce-overhead,capture=none,warmup=warm3", cpu=True),
]  # fmt: skip

ENVIRONMENT = [
    clean("host_thread", "b6_b7_environment:host_thread", "a busy thread that never touches CUDA", UNCOMPILED,
          cpu=True),
    clean("watchdog_thread_local", "b6_b7_environment:watchdog", "a thread that queries events, under thread_local",
          "capture=thread_local"),
    clean("expandable_segments", "b6_b7_environment:projection", "an allocator setting that does no harm", UNCOMPILED,
          env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, cpu=True),
    clean("own_variable", "b6_b7_environment:quiet_setting", "a variable of the step's own", UNCOMPILED,
          env={"DECODE_SCALE": "3"}, cpu=True),
]  # fmt: skip

CASES = [*STREAMS, *KERNELS, *TORCH, *ENVIRONMENT]
