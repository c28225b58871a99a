"""The indexer's kernels on a GPU against float64: every configuration, edges, capture, scratch, compilation."""

from dataclasses import replace

import pytest
import torch

from capturebook.kernels.indexer import error, scores_reference, select, select_twin
from capturebook.kernels.indexer import pinned as pinned_module
from capturebook.kernels.indexer.formats import PAGE
from capturebook.kernels.indexer.inputs import make_inputs
from capturebook.kernels.indexer.launch import run_scores, run_selection
from capturebook.kernels.indexer.pinned import TUNERS
from capturebook.kernels.indexer.reference import TOLERANCE
from capturebook.kernels.sparse_mla import pinned as pins
from indexer_cases import cases, edges, moved, score_rows, with_lengths

pytestmark = pytest.mark.gpu

KERNELS = ("stock", "bounded")


@pytest.fixture(autouse=True)
def nan_in_fresh_memory():
    """What torch.empty returns is filled with NaN, slots with 2^31 - 1: scratch and results are poisoned."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def restored(monkeypatch):
    """Puts configurations and tuning results of the autotuners back."""
    monkeypatch.setattr(pins, "_tuning", {})
    for tuners in TUNERS.values():
        for tuner in tuners.values():
            monkeypatch.setattr(tuner, "configs", list(tuner.configs))
            monkeypatch.setattr(tuner, "cache", {})


def check(inputs, slots, what=""):
    scores = scores_reference(*inputs.args())
    assert error(slots, scores, inputs.page_table, inputs.lengths) <= TOLERANCE, what


@pytest.mark.parametrize("name", cases(512))
def test_cases(name):
    inputs = moved(cases(512)[name], "cuda")
    for kernel in KERNELS:
        check(inputs, select(*inputs.args(), kernel=kernel), kernel)
    check(inputs, select_twin(*inputs.args()), "twin")


@pytest.mark.parametrize("batch", [1, 3, 17, 64, 200])
def test_over_batches(batch):
    inputs = make_inputs(batch, batch, context=16384, max_context=65536, device="cuda")
    for kernel in KERNELS:
        check(inputs, select(*inputs.args(), kernel=kernel), kernel)


def test_very_different_lengths():
    """Runs of pages that span many requests, and requests that span many runs."""
    inputs = moved(with_lengths([5, 20_000, 0, 0, 64, 3, 700, 10_000, 1] + [1] * 24, 320), "cuda")
    check(inputs, select(*inputs.args()))


@pytest.mark.parametrize("topk", [1, 7, 512, 1000, 2048])
def test_over_topk(topk):
    inputs = make_inputs(topk, 4, context=32768, max_context=65536, device="cuda")
    for kernel in KERNELS:
        check(inputs, select(*inputs.args(), topk=topk, kernel=kernel), kernel)


@pytest.mark.parametrize("name", ["edges", "random", "the edge among zeros", "fp8 edges"])
def test_every_configuration(name):
    """Each by itself: the autotuner would only ever show its favourite."""
    inputs = moved(cases(512)[name], "cuda")
    want = scores_reference(*inputs.args())
    scores_tuner, selection_tuner = TUNERS["bounded"].values()
    for kernel, tuner in (("stock", *TUNERS["stock"].values()), ("bounded", scores_tuner)):
        for config in tuner.configs:
            scores = run_scores(kernel, tuner.fn, inputs.args(), **config.all_kwargs())
            for row, expected in enumerate(want):
                if len(expected):
                    off = (scores[row, : len(expected)] - expected).abs().max() / expected.abs().max().clamp(min=1e-30)
                    assert off <= 2e-6, f"{kernel} {config}"
                beyond = scores[row, len(expected) :]
                assert ((beyond == -torch.inf) if kernel == "stock" else beyond.isnan()).all(), f"{kernel} {config}"
    for config in selection_tuner.configs:
        slots = run_selection(selection_tuner.fn, scores, inputs.page_table, inputs.lengths, 512, **config.all_kwargs())
        check(inputs, slots, str(config))


@pytest.mark.parametrize("topk", [1, 31, 512, 2000])
def test_selection_of_given_scores(topk):
    """As torch.topk has it, as a set, but for equal scores: rows of every kind, each configuration."""
    scores = torch.stack(list(score_rows(32768).values())).cuda()
    table = torch.randperm(len(scores) * 512, device="cuda").view(len(scores), 512).int()
    tuner = TUNERS["bounded"]["select_kernel"]
    for length in (topk, topk + 1, 2048, 2049, 8192, 8193, 32768):
        lengths = torch.full((len(scores),), length, dtype=torch.int32, device="cuda")
        want = list(scores[:, :length].double())
        for config in tuner.configs:
            slots = run_selection(tuner.fn, scores, table, lengths, topk, **config.all_kwargs())
            assert error(slots, want, table, lengths) == 0, f"{length} {config}"


def test_fp8_conversion_without_the_hardware_is_the_same():
    """What sm_80 runs, next to what this GPU does."""
    inputs = moved(cases(512)["fp8"], "cuda")
    tuner = TUNERS["bounded"]["bounded_scores_kernel"]
    config = tuner.configs[0].all_kwargs()
    by_bits, own = (run_scores("bounded", tuner.fn, inputs.args(), **config, **how) for how in ({"E4M3": False}, {}))
    for row, length in enumerate(inputs.lengths.tolist()):
        assert torch.allclose(by_bits[row, :length], own[row, :length], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [100_000, 262_144])
def test_rows_longer_than_what_stays_in_registers(length):
    inputs = moved(with_lengths([length, 511, length // 3], 4096), "cuda")
    check(inputs, select(*inputs.args()))


@pytest.mark.parametrize("max_context", [131_072, 1_048_576])
def test_one_graph_serves_all_lengths(max_context):
    """Captured with lengths of 1, as servers capture; replayed with other lengths, pages, queries and keys."""
    batch, width = 8, max_context // 4 // PAGE
    fresh = [
        edges(512),
        make_inputs(1, batch, 8192, max_context),
        make_inputs(2, batch, 32768, max_context),
        make_inputs(3, batch, 4, max_context),
    ]
    pages = max(len(inputs.keys) for inputs in fresh)
    static = moved(make_inputs(9, batch, 4, max_context, pages=pages), "cuda")
    assert (static.lengths == 1).all()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            select(*static.args())
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            slots = select(*static.args())
    torch.cuda.synchronize()
    for inputs in fresh:
        static.q.copy_(inputs.q)
        static.weights.copy_(inputs.weights)
        static.keys.fill_(torch.nan)[: len(inputs.keys)].copy_(inputs.keys)
        static.page_table.zero_()[:, : inputs.page_table.shape[1]].copy_(inputs.page_table[:, :width])
        static.lengths.copy_(inputs.lengths.clamp(max=64 * inputs.page_table.shape[1]))
        slots.fill_(2**31 - 1)
        graph.replay()
        torch.cuda.synchronize()
        check(static, slots)


def test_scratch_is_one_score_for_each_key():
    batch, width = 16, 4096
    inputs = make_inputs(0, batch, 8192, 4 * PAGE * width, device="cuda")
    torch.use_deterministic_algorithms(False)
    select(*inputs.args())
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    slots = select(*inputs.args())
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before <= batch * width * PAGE * 4 + slots.nbytes


def test_keys_of_more_than_2_to_the_31_elements():
    pages = 2**18 + 64  # 8192 elements each, 4.3 GB
    if torch.cuda.mem_get_info()[0] < 30e9:
        pytest.skip("needs 30 GB of free GPU memory")
    inputs = make_inputs(9, 4, 8192, 16384, device="cuda", pages=pages)
    moved_pages = inputs.page_table.clone()
    moved_pages[0, :8] = torch.arange(pages - 8, pages)
    inputs.keys[-8:].normal_()
    inputs = replace(inputs, page_table=moved_pages)
    for kernel in KERNELS:
        check(inputs, select(*inputs.args(), kernel=kernel), kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_pinned(kernel, restored):
    major, minor = torch.cuda.get_device_capability()
    pinned_module.pin(kernel, major * 10 + minor)
    inputs = moved(cases(512)["edges"], "cuda")
    check(inputs, select(*inputs.args(), kernel=kernel))
    assert all(tuner.cache == {} for tuner in TUNERS[kernel].values()), "a pinned kernel was tuned"


@pytest.mark.parametrize("kernel", KERNELS)
def test_compiled(kernel):
    torch._dynamo.reset()
    inputs = moved(cases(512)["edges"], "cuda")
    compiled = torch.compile(lambda *tensors: select(*tensors, kernel=kernel) + 0, fullgraph=True)
    check(inputs, compiled(*inputs.args()))


def test_operator_checks():
    inputs = moved(cases(512)["edges"], "cuda")
    for kernel in KERNELS:
        torch.library.opcheck(torch.ops.capturebook.indexer_select, (*inputs.args(), 512, kernel, "live"))
