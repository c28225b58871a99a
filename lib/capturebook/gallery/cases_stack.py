"""Cases whose owner is the stack or the environment. Expected classes are written by hand, from what was measured."""

from .case import Case
from .cases_kernel import COLD, COMPILED, PYTORCH, UNCOMPILED

RUN = "Run the compiled step, with the shapes of the capture, before the capture."
B1 = [
    Case("b1_cold", "b1_b2_compile:projection", "B1", "Cannot copy between CPU and CUDA tensors, in fuse_attention.py",
         RUN, f"{COMPILED},warmup=cold", cured=True, cpu=True, cost=2, source=f"{PYTORCH}131782"),
    Case("b1_warm_stack", "b1_b2_compile:projection", "B1", "900 in a synchronize of Inductor's", RUN,
         f"{COMPILED},{COLD}", cured=True, cpu=True, cost=2, source=f"{PYTORCH}167639"),
    Case("b1_pointwise", "b1_b2_compile:pointwise", "B1", "900 in a synchronize of Inductor's", RUN,
         f"{COMPILED},{COLD}", cured=True, cpu=True, cost=2),
    Case("b1_guard_fails", "b1_b2_compile:guard_fails", "B1", "900 in the capture after two good warm-up calls",
         "Make the value a tensor, or warm up with it.", COMPILED, fixed="guard_fails_fixed", cpu=True, cost=2),
    Case("b1_max_autotune", "b1_b2_compile:projection", "B1", "NoValidChoicesError with an empty message", RUN,
         f"compile=max-autotune-no-cudagraphs,{COLD}", cured=True, cpu=True, cost=3),
]  # fmt: skip

B2 = [
    Case("b2_never_run", "b1_b2_compile:compiled_but_never_run", "B2", "900 although everything was compiled before",
         "Run every compiled artifact once before the capture.", COLD, cured=True, cost=2,
         source="https://github.com/vllm-project/vllm/issues/40742"),
    Case("b2_second_size", "b1_b2_compile:second_size_never_run", "B2",
         "900 at the second size, although both were compiled before",
         "Run every compiled artifact once before the capture.", UNCOMPILED, fixed="second_size_never_run_fixed",
         cost=2),
]  # fmt: skip

NO_TREES = "A mode without trees (default, max-autotune-no-cudagraphs) under an outer capture."
TREES = "compile=reduce-overhead"
B3 = [
    Case("b3_reduce_overhead", "b3_b4_trees_libraries:projection", "B3", "900 in cudagraph_trees.py", NO_TREES, TREES,
         cured=True, cpu=True, cost=2, source="https://github.com/vllm-project/vllm/issues/26952"),
    Case("b3_recorded_before", "b3_b4_trees_libraries:projection", "B3",
         "Cannot prepare for replay during capturing stage", NO_TREES, f"{TREES},warmup=warm3", cured=True, cpu=True,
         cost=2, source=f"{PYTORCH}120733"),
    Case("b3_variable", "b3_b4_trees_libraries:projection", "B3", "900 in cudagraph_trees.py, in the default mode",
         "Unset TORCHINDUCTOR_CUDAGRAPHS.", COMPILED, env={"TORCHINDUCTOR_CUDAGRAPHS": "1"}, cured=True,
         cpu=True, cost=2),
    Case("b3_brings_its_own", "b3_b4_trees_libraries:brings_its_own_trees", "B3",
         "Cannot prepare for replay during capturing stage, with torch.compile asked for by nobody", NO_TREES,
         UNCOMPILED, fixed="brings_its_own_trees_fixed", cost=2),
    Case("b3_two_live_outputs", "b3_b4_trees_libraries:two_live_outputs", "B3",
         "the first output silently becomes the second", "Clone an output that must outlive the next run.",
         f"{TREES},capture=none,warmup=warm3", fixed="two_live_outputs_fixed", silent=True, cpu=True, cost=2,
         source=f"{PYTORCH}122192"),
]  # fmt: skip

TOUCH = "Use the library once before the capture, on its thread and stream."
B4 = [
    Case("b4_matmul", "b3_b4_trees_libraries:matmul", "B4", "CUBLAS_STATUS_NOT_INITIALIZED", TOUCH, "warmup=cold",
         cured=True, cpu=True, source=f"{PYTORCH}99397"),
    Case("b4_convolution", "b3_b4_trees_libraries:convolution", "B4", "cuDNN error", TOUCH, "warmup=cold", cured=True,
         cpu=True),
    Case("b4_fourier", "b3_b4_trees_libraries:fourier", "B4", "CUFFT_INTERNAL_ERROR", TOUCH, "warmup=cold", cured=True,
         cpu=True),
    Case("b4_other_thread", "b3_b4_trees_libraries:matmul", "B4", "CUBLAS_STATUS_NOT_INITIALIZED after a warm-up",
         TOUCH, "warmup=warm2,thread=other", cured=True, cpu=True),
    Case("b4_first_used_in_capture", "b3_b4_trees_libraries:first_used_in_capture", "B4",
         "CUFFT_INTERNAL_ERROR after two good warm-up calls", TOUCH, UNCOMPILED, fixed="first_used_in_capture_fixed",
         cpu=True),
]  # fmt: skip

SIDE = "overlap=true,sync={sync},graph_break={where}"
TOGETHER = "Join by an event, or register the call that breaks the graph, or run the side work in line."
B5 = [
    Case("b5_break_between", "b5_streams_dropped:side_by_side", "B5", "905 at the join, only compiled and captured",
         TOGETHER, "compile=aot_eager," + SIDE.format(sync="stream", where="between"), cured=True, cost=2,
         source=f"{PYTORCH}180396"),
    Case("b5_break_between_inductor", "b5_streams_dropped:side_by_side", "B5",
         "905 at the join, only compiled and captured", TOGETHER,
         f"{COMPILED}," + SIDE.format(sync="stream", where="between"), cured=True, cost=2),
    Case("b5_break_after_fork", "b5_streams_dropped:side_by_side", "B5", "900, only compiled and captured", TOGETHER,
         "compile=aot_eager," + SIDE.format(sync="stream", where="after_fork"), cured=True, cost=2),
    Case("b5_break_after_event", "b5_streams_dropped:side_by_side", "B5", "900, only compiled and captured", TOGETHER,
         "compile=aot_eager," + SIDE.format(sync="event", where="after_fork"), cured=True, cost=2),
    Case("b5_join_eager", "b5_streams_dropped:fork_compiled_join_eager", "B5",
         "905 at an eager join, only with the fork compiled", "Keep the fork out of the compiler.",
         "compile=aot_eager", fixed="fork_compiled_join_eager_fixed", cost=2,
         source="https://github.com/sgl-project/sglang/issues/29142"),
    Case("b5_compiles_its_fork", "b5_streams_dropped:compiles_its_fork", "B5",
         "905 at an eager join, with torch.compile asked for by nobody", "Keep the fork out of the compiler.",
         UNCOMPILED, fixed="compiles_its_fork_fixed", cost=2),
    Case("b5_non_blocking", "b5_streams_dropped:non_blocking_dropped", "B5",
         "900 or a copy error in generated code, only compiled and captured", "Keep the copy out of the compiler.",
         COMPILED, fixed="non_blocking_dropped_fixed", cost=2),
]  # fmt: skip

LOCAL = "capture_error_mode='thread_local', or stop the thread meanwhile."
B6 = [
    Case("b6_watchdog", "b6_b7_environment:watchdog", "B6", "901 and nothing else", LOCAL, UNCOMPILED, cured=True,
         source=f"{PYTORCH}104487"),
    Case("b6_data_loader", "b6_b7_environment:data_loader", "B6", "901 and nothing else", LOCAL, UNCOMPILED,
         cured=True),
    Case("b6_allocator", "b6_b7_environment:allocator", "B6", "901 and nothing else", LOCAL, UNCOMPILED, cured=True,
         source="https://github.com/vllm-project/vllm/issues/48053"),
    Case("b6_synchroniser", "b6_b7_environment:synchroniser", "B6", "901 in every capture mode",
         "No thread may synchronise the device while a capture is open.", UNCOMPILED, fixed="synchroniser_fixed"),
]  # fmt: skip

UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
B7 = [
    Case("b7_no_caching", "b6_b7_environment:projection", "B7", "900 at any allocation; no capture works any more",
         "Unset PYTORCH_NO_CUDA_MEMORY_CACHING.", UNCOMPILED, env=UNCACHED, cured=True, cpu=True, cost=2),
    Case("b7_no_caching_kernel", "b6_b7_environment:kernel", "B7", "900 at any allocation; no capture works any more",
         "Unset PYTORCH_NO_CUDA_MEMORY_CACHING.", UNCOMPILED, env=UNCACHED, cured=True, cost=2),
    Case("b7_nan_asserts", "b6_b7_environment:projection", "B7", "900 in generated code", "Unset the debug variable.",
         COMPILED, env={"TORCHINDUCTOR_NAN_ASSERTS": "1"}, cured=True, cpu=True, cost=2),
    Case("b7_interpreter", "b6_b7_environment:kernel", "B7", "900, or a copy error, in Triton's interpreter",
         "Unset TRITON_INTERPRET.", UNCOMPILED, env={"TRITON_INTERPRET": "1"}, cured=True, cost=2),
]  # fmt: skip

COMPILER = [
    Case("b8_wrong_fusion", "b8_b9_compiler:wrong_fusion", "B8", "wrong numbers, only compiled; eager is right",
         "Leave the step uncompiled, find the pass, report it.", COMPILED, fixed="pass_fixed", cured=True, silent=True,
         cpu=True, cost=2),
    Case("b9_failing_pass", "b8_b9_compiler:failing_pass", "B9", "the compiler raises on a sound step",
         "Leave the step uncompiled, find the pass, report it.", COMPILED, fixed="pass_fixed", cured=True, cpu=True,
         cost=2),
]  # fmt: skip

CASES = [*B1, *B2, *B3, *B4, *B5, *B6, *B7, *COMPILER]
