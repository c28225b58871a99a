"""Environment variables that can by themselves make a sound step fail: allocator, debug and profiler settings.

The debug ones wait for the device, look at values on the host or tune: what a capture refuses, in the step's own name.
A probe "scrubbed" runs without them (class B7 when the failure is gone then). TORCHINDUCTOR_CUDAGRAPHS is not one of
them: it decides how a step is compiled, so it is a factor of the arm.
"""

from collections.abc import Mapping

SETTINGS = (
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_DSA_STACKTRACING",
    "PYTORCH_TUNABLEOP_ENABLED",
    "PYTORCH_TUNABLEOP_NUMERICAL_CHECK",
    "PYTORCH_TUNABLEOP_TUNING",
    "PYTORCH_USE_CUDA_DSA",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_INJECTION64_PATH",
    "CUDA_INJECTION32_PATH",
    "CUDA_MODULE_LOADING",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVTX_INJECTION64_PATH",
    "NSYS_PROFILING_SESSION_ID",
    "TORCH_USE_CUDA_DSA",
    "TORCH_SHOW_CPP_STACKTRACES",
    "TORCH_CUDA_SANITIZER",
    "TORCH_CUDNN_SDPA_CACHE_DEBUG",
    "TORCH_CUDNN_V8_API_DEBUG",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_DESYNC_DEBUG",
    "TORCH_NCCL_ENABLE_TIMING",
    "TORCH_NCCL_NAN_CHECK",
    "TORCH_COMPILE_CPROFILE",
    "TORCH_COMPILE_DEBUG",
    "TORCH_COMPILE_DYNAMO_PROFILER",
    "TORCHDYNAMO_DISABLE",
    "TORCHINDUCTOR_NAN_ASSERTS",
    "TORCHINDUCTOR_PROFILE",
    "TORCHINDUCTOR_RUNTIME_TRITON_NAN_ASSERTS",
    "TORCHINDUCTOR_TRITON_PROTON_PROFILING",
    "KINETO_USE_DAEMON",
    "TRITON_DEBUG",
    "TRITON_INTERPRET",
    "TRITON_ALWAYS_COMPILE",
    "LD_PRELOAD",
)


def settings_in(env: Mapping[str, str]) -> dict[str, str]:
    """Those of SETTINGS that an environment sets, with their values."""
    return {name: env[name] for name in SETTINGS if env.get(name)}
