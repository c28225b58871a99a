"""Cases whose owner is the kernel, the subject's own code. Classes are written by hand, from what was measured."""

from .case import Case

UNCOMPILED = "compile=none"
COLD = "warmup=kernel_cold"
COMPILED = "compile=default"
WHOLE = "compile=default,fullgraph=true"
PYTORCH = "https://github.com/pytorch/pytorch/issues/"
WARM = "Call the step before the capture, with every key and dtype that it may meet there."

K1 = [
    Case("k1_first_call", "k1_autotune:first_call", "K1", "900, then 901, at the first captured call", WARM, COLD,
         cured=True, source="https://github.com/triton-lang/triton/issues/10596"),
    Case("k1_relaxed", "k1_autotune:first_call", "K1", "900 in relaxed mode too", WARM, f"{COLD},capture=relaxed",
         cured=True),
    Case("k1_thread_local", "k1_autotune:first_call", "K1", "900 in thread_local mode too", WARM,
         f"{COLD},capture=thread_local", cured=True),
    Case("k1_benchmarked_by_graphs", "k1_autotune:benchmarked_by_graphs", "K1",
         "900 although the benchmark itself uses graphs", WARM, COLD, cured=True),
    Case("k1_new_key", "k1_autotune:new_key", "K1", "900 in the capture after two good warm-up calls", WARM, UNCOMPILED,
         fixed="new_key_fixed", source="https://github.com/vllm-project/vllm/issues/36599"),
    Case("k1_new_dtype", "k1_autotune:new_dtype", "K1", "900 in the capture after two good warm-up calls", WARM,
         UNCOMPILED, fixed="new_dtype_fixed"),
    Case("k1_opaque_operator", "k1_autotune:opaque_operator", "K1",
         "compiled without a fault, 900 in the capture at a new length", WARM, COMPILED,
         fixed="opaque_operator_fixed", cost=2),
]  # fmt: skip

K2 = [
    Case("k2_item", "k2_host_sync:item", "K2", "900 at .item()", "Keep the value on the device.", UNCOMPILED,
         fixed="item_fixed", cpu=True, source="https://github.com/NVIDIA/TensorRT/issues/2888"),
    Case("k2_tolist", "k2_host_sync:tolist", "K2", "900 at .tolist()", "Index with a device tensor.", UNCOMPILED,
         fixed="tolist_fixed", cpu=True),
    Case("k2_nonzero", "k2_host_sync:nonzero", "K2", "900 at nonzero", "Mask instead of selecting.", UNCOMPILED,
         fixed="nonzero_fixed", cpu=True),
    Case("k2_mask", "k2_host_sync:mask", "K2", "900 at x[mask]", "Use torch.where.", UNCOMPILED, fixed="mask_fixed",
         cpu=True),
    Case("k2_list_to_tensor", "k2_host_sync:list_to_tensor", "K2", "Cannot copy between CPU and CUDA tensors",
         "Make the tensor once, before.", UNCOMPILED, fixed="list_to_tensor_fixed", cpu=True,
         source=f"{PYTORCH}175425"),
    Case("k2_pageable_copy", "k2_host_sync:pageable_copy", "K2", "Cannot copy between CPU and CUDA tensors",
         "Keep it on the device, or copy from pinned memory, non_blocking.", UNCOMPILED, fixed="pageable_copy_fixed",
         cpu=True),
    Case("k2_device_synchronize", "k2_host_sync:device_synchronize", "K2", "900 at torch.cuda.synchronize()",
         "Let the caller wait.", UNCOMPILED, fixed="device_synchronize_fixed"),
    Case("k2_stream_synchronize", "k2_host_sync:stream_synchronize", "K2", "900 at Stream.synchronize()",
         "Let the caller wait.", UNCOMPILED, fixed="device_synchronize_fixed"),
    Case("k2_swallowed", "k2_host_sync:swallowed", "K2", "901 at the end of the capture, and nothing else",
         "Let the caller wait.", UNCOMPILED, fixed="device_synchronize_fixed"),
    Case("k2_unchecked", "k2_host_sync:unchecked", "K2", "901 at the end of the capture, and nothing else",
         "Look at the code that the call returns; let the caller wait.", UNCOMPILED, fixed="device_synchronize_fixed"),
    Case("k2_reseeds", "k2_host_sync:reseeds", "K2", "set_current_seed can be called ... only if new seed is the same",
         "Seed between replays.", UNCOMPILED, fixed="reseeds_fixed"),
    Case("k2_own_generator", "k2_host_sync:own_generator", "K2",
         "Attempt to increase offset for a CUDA generator not in capture mode",
         "graph.register_generator_state(generator) before the capture.", UNCOMPILED, fixed="own_generator_fixed",
         source=f"{PYTORCH}172390"),
]  # fmt: skip

JOIN = "Fork from the capturing stream, and join to it before the step ends."
K3 = [
    Case("k3_waits_on_idle_side", "k3_streams:waits_on_idle_side", "K3", "905 at wait_stream", JOIN, UNCOMPILED,
         fixed="waits_fixed", source="https://github.com/NVIDIA/cccl/issues/8674"),
    Case("k3_waits_on_default", "k3_streams:waits_on_default", "K3", "905 at wait_stream(default_stream())",
         "Wait before the capture.", UNCOMPILED, fixed="waits_fixed"),
    Case("k3_prefetch", "k3_streams:prefetch", "K3", "905 at wait_event", "torch.cuda.Event(external=True).",
         UNCOMPILED, fixed="prefetch_fixed"),
    Case("k3_never_joined", "k3_streams:never_joined", "K3", "904 at the end of the capture", JOIN, UNCOMPILED,
         fixed="never_joined_fixed", source="https://github.com/deepseek-ai/DeepEP/issues/62"),
    Case("k3_forked_from_default", "k3_streams:forked_from_default", "K3", "900 at an innocent allocation", JOIN,
         UNCOMPILED, fixed="fork_and_join_fixed"),
    Case("k3_queries_event", "k3_streams:queries_event", "K3", "907 at event.query()",
         "Do not ask for an event that was recorded in the capture.", UNCOMPILED, fixed="queries_event_fixed",
         source=f"{PYTORCH}193982"),
    Case("k3_captures_itself", "k3_streams:captures_itself", "K3", "900 where a library begins its own graph",
         "Look whether a capture is open, and join it.", UNCOMPILED, fixed="captures_itself_fixed"),
    Case("k3_backward", "k3_streams:backward_of_the_default_stream", "K3", "906 or 905 in backward()",
         "Keep nothing of a forward that ran on the default stream; warm up on a side stream.", UNCOMPILED,
         fixed="backward_fixed", source=f"{PYTORCH}189591"),
    Case("k3_default_stream_library", "k3_streams:default_stream_library", "K3", "stale numbers on every replay",
         "Launch on the current stream.", UNCOMPILED, fixed="current_stream_fixed", silent=True,
         source=f"{PYTORCH}15623"),
    Case("k3_unforked_side", "k3_streams:unforked_side", "K3", "stale numbers on every replay", JOIN, UNCOMPILED,
         fixed="current_stream_fixed", silent=True),
    Case("k3_raw_copy", "k3_streams:raw_copy", "K3", "stale numbers on every replay",
         "Pass torch.cuda.current_stream().cuda_stream to the call.", UNCOMPILED, fixed="raw_copy_fixed", silent=True),
]  # fmt: skip

K4 = [
    Case("k4_foreign_call", "k4_not_compilable:foreign_call", "K4", "Unsupported, under fullgraph",
         "Put the call into a registered operator.", WHOLE, fixed="foreign_call_fixed", cpu=True, cost=2),
    Case("k4_no_fake", "k4_not_compilable:no_fake", "K4", "no fake impl registered", "Register a fake implementation.",
         COMPILED, fixed="no_fake_fixed", cpu=True, cost=2),
    Case("k4_wrong_strides", "k4_not_compilable:wrong_strides", "K4", "AssertionError: expected size ..., stride ...",
         "A fake implementation with the strides of the real output.", COMPILED, fixed="wrong_strides_fixed", cost=2),
    Case("k4_wrong_dtype", "k4_not_compilable:wrong_dtype", "K4", "wrong numbers, compiled only",
         "A fake implementation with the dtype of the real output.", COMPILED, fixed="wrong_dtype_fixed", silent=True,
         cpu=True, cost=2),
    Case("k4_branch_on_data", "k4_not_compilable:branch_on_data", "K4", "Unsupported: data-dependent branching",
         "torch.where.", f"{WHOLE},capture=none", fixed="branch_on_data_fixed", cpu=True, cost=2),
    Case("k4_pre_hook", "k4_not_compilable:pre_hook", "K4", "pre_hook and post_hook are not supported",
         "reset_to_zero or restore_value instead of a hook.", WHOLE, fixed="pre_hook_fixed", cost=2,
         source=f"{PYTORCH}139059"),
]  # fmt: skip

K5 = [
    Case("k5_tuned_in_place", "k5_wrong_before:tuned_in_place", "K5", "the first call is wrong, all later ones right",
         "restore_value=[...] in triton.autotune.", UNCOMPILED, fixed="tuned_in_place_fixed", cured=True, silent=True,
         source="https://github.com/triton-lang/triton/issues/7181"),
    Case("k5_tuned_in_place_compiled", "k5_wrong_before:tuned_in_place", "K5",
         "the first compiled call is wrong, all later ones right", "restore_value=[...] in triton.autotune.",
         f"{COMPILED},capture=none", fixed="tuned_in_place_fixed", silent=True, cost=2),
    Case("k5_tuned_accumulator", "k5_wrong_before:tuned_accumulator", "K5", "the first sum is thousands of times large",
         "reset_to_zero=[...] in triton.autotune, and zero it yourself before each call.", UNCOMPILED,
         fixed="tuned_accumulator_fixed", cured=True, silent=True),
    Case("k5_last_block_forgotten", "k5_wrong_before:last_block_forgotten", "K5", "the tail of the output is zero",
         "Round the grid up.", UNCOMPILED, fixed="last_block_forgotten_fixed", silent=True),
    Case("k5_scribbles_on_input", "k5_wrong_before:scribbles_on_input", "K5",
         "the step is right, and its caller's tensor is not", "Scratch space of its own, or declare it as state.",
         UNCOMPILED, fixed="scribbles_on_input_fixed", silent=True, cpu=True),
    Case("k5_gradient_kept", "k5_wrong_before:gradient_kept", "K5", "right once, then the sum of all calls so far",
         "Zero the gradient in place, in the step.", UNCOMPILED, fixed="gradient_kept_fixed", silent=True),
    Case("k5_undeclared_mutation", "k5_wrong_before:undeclared_mutation", "K5", "right when eager, wrong when compiled",
         "mutates_args names what the operator writes.", COMPILED, fixed="undeclared_mutation_fixed", silent=True,
         cpu=True, cost=2),
]  # fmt: skip

STATIC = "Keep it in a device buffer that the caller writes before each replay."
KEEP = "Keep the buffer as long as the graph, and copy into it."
K6 = [
    Case("k6_scalar", "k6_baked:scalar", "K6", "every replay repeats the number of the capture", STATIC,
         UNCOMPILED, fixed="scalar_fixed", silent=True, cpu=True),
    Case("k6_branch", "k6_baked:branch", "K6", "every second replay is wrong", "torch.where on a device flag.",
         UNCOMPILED, fixed="branch_fixed", silent=True, cpu=True),
    Case("k6_length", "k6_baked:length", "K6", "the context stops growing", "Mask by a length on the device.",
         UNCOMPILED, fixed="length_fixed", silent=True, cpu=True),
    Case("k6_plan", "k6_baked:plan", "K6", "right until the length changes",
         "Make the plan in the step, from the device.", UNCOMPILED, fixed="plan_fixed", silent=True, cpu=True),
    Case("k6_host_random", "k6_baked:host_random", "K6", "the same random number in every replay", STATIC, UNCOMPILED,
         fixed="host_random_fixed", silent=True, cpu=True),
    Case("k6_grid", "k6_baked:grid", "K6", "later rows stay zero", "Launch the largest grid; look on the device.",
         UNCOMPILED, fixed="grid_fixed", silent=True),
    Case("k6_cache_by_cat", "k6_baked:cache_by_cat", "K6", "the cache never grows after the capture",
         "A cache of full size, written in place.", UNCOMPILED, fixed="cache_by_cat_fixed", silent=True, cpu=True),
    Case("k6_window_rebound", "k6_baked:window_rebound", "K6", "the window never moves after the capture",
         "Shift it in place.", UNCOMPILED, fixed="window_rebound_fixed", silent=True, cpu=True),
    Case("k6_weight_rebound", "k6_memory:weight_rebound", "K6", "weight updates have no effect", KEEP, UNCOMPILED,
         fixed="weight_rebound_fixed", silent=True, cpu=True),
    Case("k6_table_freed", "k6_memory:table_freed", "K6", "numbers of some other tensor", KEEP, UNCOMPILED,
         fixed="table_freed_fixed", silent=True, cpu=True,
         source="https://github.com/NVIDIA/TensorRT-LLM/issues/16319"),
    Case("k6_pinned_freed", "k6_memory:pinned_freed", "K6", "numbers of some other host buffer", KEEP, UNCOMPILED,
         fixed="pinned_freed_fixed", silent=True),
    Case("k6_unmapped", "k6_memory:unmapped", "K6", "700 on replay, and the process is lost", KEEP, UNCOMPILED,
         fixed="unmapped_fixed"),
    Case("k6_input_rebound", "k6_memory:input_rebound", "K6", "the output never changes", "x.copy_(new).", UNCOMPILED,
         fixed="input_rebound_fixed", silent=True, source=f"{PYTORCH}114844"),
    Case("k6_input_freed", "k6_memory:input_freed", "K6", "numbers of some other tensor", KEEP, UNCOMPILED,
         fixed="input_freed_fixed", silent=True),
    Case("k6_read_too_early", "k6_memory:read_too_early", "K6", "zeros", "Replay before reading.", UNCOMPILED,
         fixed="read_too_early_fixed", silent=True),
    Case("k6_output_overwritten", "k6_memory:output_overwritten", "K6", "the first result turns into the second",
         "Clone what must outlive the next replay.", UNCOMPILED, fixed="output_overwritten_fixed", silent=True),
    Case("k6_output_not_held", "k6_memory:output_not_held", "K6", "one graph's result is another graph's",
         "Hold the output as long as its graph.", UNCOMPILED, fixed="output_not_held_fixed", silent=True),
]  # fmt: skip

CASES = [*K1, *K2, *K3, *K4, *K5, *K6]
