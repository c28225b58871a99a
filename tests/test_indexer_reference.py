"""The indexer on a CPU: reference by hand, error metric, twin, operator, inputs, cost, pinned entries, build."""

import math
import re

import pytest
import torch

from capturebook.kernels.indexer import error, pinned, scores_reference, select, select_twin
from capturebook.kernels.indexer.cost import select_cost
from capturebook.kernels.indexer.examples import examples
from capturebook.kernels.indexer.formats import FORMATS, quantise, values_of
from capturebook.kernels.indexer.inputs import make_inputs
from capturebook.kernels.indexer.reference import TOLERANCE
from capturebook.kernels.indexer.scores import bounded_scores_kernel
from capturebook.kernels.sparse_mla import pinned as pins
from capturebook.measure.crosscompile import compile_row
from capturebook.measure.specialise import specialise
from indexer_cases import cases, edges


def test_reference_by_hand():
    """Two heads, weights 2 and -1, a page of two keys; page 0 and what lies behind a length must not count."""
    nan = torch.nan
    keys = torch.tensor([[[nan, nan], [nan, nan]], [[1.0, 3.0], [-2.0, 5.0]], [[4.0, -1.0], [nan, nan]]])
    scores = scores_reference(
        q=torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [-1.0, 0.0]]]),
        weights=torch.tensor([[2.0, -1.0], [2.0, -1.0]]),
        keys=keys,
        page_table=torch.tensor([[2, 0], [1, 2]], dtype=torch.int32),
        lengths=torch.tensor([1, 3], dtype=torch.int32),
    )
    # 2*4 - 0; then 2*4 - 0, 2*3 - 2, 2*3 - 0
    assert [row.tolist() for row in scores] == [[8.0], [8.0, 4.0, 6.0]]


def test_error_by_hand():
    scores = [torch.tensor([1.0, -4.0, 3.0, 2.0], dtype=torch.float64)]
    call = dict(scores=scores, page_table=torch.tensor([[2, 1]]), lengths=torch.tensor([4]), page=2)

    def of(*slots):  # positions 0 to 3 are slots 4, 5, 2, 3
        return error(torch.tensor([slots], dtype=torch.int32), **call)

    assert of(2, 3) == of(3, 2) == 0, "a set"
    assert of(2, 4) == pytest.approx((2 - 1) / 4) and of(4, 5) == pytest.approx((3 + 4) / 4)
    assert of(5, 4, 3, 2) == of(2, 3, 4, 5, -1) == 0, "all of them, and padding"
    assert of(2, 2) == math.inf, "taken twice"
    assert of(2, 0) == of(2, 9) == math.inf, "not the request's"
    assert of(2, -1) == of(-1, 2) == of(2, 3, 4, -1, 5) == math.inf, "too few, or padding before a slot"
    assert of(2, 3, 4, 5, 5) == math.inf, "too many"


@pytest.mark.parametrize("name", cases(48))
@pytest.mark.parametrize("topk", [1, 48])
def test_twin_against_float64(name, topk):
    inputs = cases(48)[name]
    scores = scores_reference(*inputs.args())
    assert all(row.isfinite().all() for row in scores), "the reference read a key that nobody has"
    slots = select_twin(*inputs.args(), topk)
    assert slots.dtype == torch.int32 and slots.shape == (len(inputs.lengths), topk)
    assert error(slots, scores, inputs.page_table, inputs.lengths) <= TOLERANCE


def test_cases_are_what_they_say():
    made = {name: scores_reference(*inputs.args()) for name, inputs in cases(48).items()}
    assert [len(row) for row in made["edges"]] == [0, 1, 48, 49, 256, 256, 0, 64]
    assert made["all equal"][0].unique().numel() == 1 and not made["zeros after relu"][0].any()
    assert 0 < (made["the edge among zeros"][0] > 0).sum() < 48 and (made["all negative"][0] <= 0).all()
    sizes = made["wide range"][0].abs()
    assert sizes.max() / sizes[sizes > 0].min() > 1e30


def test_fp8_pages_by_hand():
    """Values first, scales behind them, by page: 448 * 0.5 in row 3 of page 1, byte 0x7e of which is e4m3's largest."""
    keys = torch.zeros(2, 64, 128)
    keys[1, 3, 5], keys[1, 3, 6], keys[1, 4, 0] = -224.0, 0.5, 2.0**-6
    packed = quantise(keys)
    assert packed.shape == (2, 8448) and packed.dtype == torch.uint8
    assert packed[1, 3 * 128 + 5] == 0xFE and packed[1, 3 * 128 + 6] == 0x38 and packed[1, 4 * 128] == 0x7E
    scales = packed[1, 8192:].view(torch.float32)
    assert scales[3] == 0.5 and scales[4] == torch.tensor(2.0**-6 / 448)
    assert torch.allclose(values_of(packed, torch.float64), keys.double(), rtol=1e-7)
    drawn = torch.randn(3, 64, 128)
    assert (values_of(quantise(drawn), torch.float32) - drawn).abs().max() <= drawn.abs().max() / 16
    assert values_of(quantise(torch.full((1, 64, 128), torch.nan)), torch.float32).isnan().all()


def test_twin_over_several_chunks_and_an_empty_table():
    inputs = make_inputs(5, batch=2, context=40_000, max_context=80_000)
    assert inputs.page_table.shape[1] > 4 * 64
    assert error(select(*inputs.args()), scores_reference(*inputs.args()), *inputs.args()[3:]) <= TOLERANCE
    nothing = torch.empty(2, 0, dtype=torch.int32)
    assert (select(*inputs.args()[:3], nothing, inputs.lengths, topk=7) == torch.full((2, 7), -1)).all()


def test_operator_is_the_twin_on_a_cpu_and_passes_opcheck():
    inputs = edges(48)
    for kernel in ("stock", "bounded"):
        assert torch.equal(select(*inputs.args(), topk=48, kernel=kernel), select_twin(*inputs.args(), 48))
    torch.library.opcheck(torch.ops.capturebook.indexer_select, (*inputs.args(), 48, "bounded", "live"))


def test_operator_compiles_without_a_graph_break():
    inputs = edges(48)

    def step(*tensors):
        return select(*tensors, topk=48) + 0

    torch._dynamo.reset()
    explained = torch._dynamo.explain(step)(*inputs.args())
    assert (explained.graph_count, explained.graph_break_count) == (1, 0)


@pytest.mark.parametrize(
    "name, change, allowed",
    [
        ("q", lambda t: t.float(), "torch.bfloat16"),
        ("q", lambda t: t[0], "[batch, 64, 128]"),
        ("weights", lambda t: t[:, :32], "[8, 64]"),
        ("keys", lambda t: t.flatten(0, 1), "[any, 64, 128]"),
        ("keys", lambda t: t.view(torch.uint8), "[any, 8448]"),
        ("keys", lambda t: t.half(), "torch.bfloat16"),
        ("page_table", lambda t: t.long(), "torch.int32"),
        ("page_table", lambda t: t[:, ::2], "contiguous"),
        ("lengths", lambda t: t[:, None], "[8]"),
        ("topk", lambda t: 0, "1 to 4096"),
        ("kernel", lambda t: "fast", "stock, bounded"),
    ],
)
def test_bad_arguments_are_named_in_one_line(name, change, allowed):
    inputs = edges(48)
    arguments = {field: getattr(inputs, field) for field in inputs.__dataclass_fields__}
    arguments[name] = change(arguments.get(name))
    with pytest.raises(ValueError) as caught:
        select(**arguments)
    text = str(caught.value)
    assert text.startswith(f"{name}: ") and allowed in text and "\n" not in text


def test_inputs():
    first, again, other = (make_inputs(seed, batch=9, context=8192, max_context=131072) for seed in (5, 5, 6))
    assert all(
        torch.equal(
            a,
            b,
        )
        for a, b in zip(first.args()[:2], again.args()[:2])
    )
    assert torch.equal(first.keys.nan_to_num(), again.keys.nan_to_num())
    assert all(not torch.equal(a, b) for a, b in zip(first.args(), other.args()))
    assert all((a.shape, a.dtype) == (b.shape, b.dtype) for a, b in zip(first.args(), other.args()))
    assert first.page_table.shape == (9, 512) and first.keys.shape == (9 * 32 + 1, 64, 128)
    assert first.lengths.max() <= 2048 and first.lengths.min() >= 2048 - 256
    used = first.page_table[first.page_table > 0]
    assert used.unique().numel() == used.numel() == int(((first.lengths + 63) // 64).sum()), "no page twice"
    held = ~first.keys.isnan().any(-1)
    assert int(held.sum()) == int(first.lengths.sum()), "NaN in every key that nobody has"
    with pytest.raises(ValueError, match="context: 9000; allowed: 4 to max_context, 8192"):
        make_inputs(0, batch=1, context=9000, max_context=8192)
    with pytest.raises(ValueError, match="pages: 32; allowed: more than 32"):
        make_inputs(0, batch=1, context=8192, max_context=8192, pages=32)


def test_cost_by_hand():
    # 64 requests of 2048 keys: 256 B a key; a page number for each 64; 64*(256 + 4) + 4 + 2048 B a request
    cost = select_cost(batch=64, keys=64 * 2048)
    assert cost.bytes == 64 * 2048 * 256 + 2048 * 4 + 64 * (64 * 260 + 4 + 2048)
    assert cost.flops == 64 * 2048 * 64 * 258
    # an H200, measured: 4.63 TB/s; 33.6 MB of keys and 1.2 MB beside
    assert cost.floor(4.63e12, 795e12) * 1e6 == pytest.approx(7.5, abs=0.05)


@pytest.mark.parametrize("sm", pins.LIKE)
def test_every_kernel_has_a_pinned_configuration_that_is_tried(sm):
    for tuners in pinned.TUNERS.values():
        for name, tuner in tuners.items():
            for key_format in FORMATS:
                assert pinned.pinned_config(name, sm, key_format) in tuner.configs
                assert "cross-compilation" in pinned.pinned_entry(name, sm, key_format)["source"]
    with pytest.raises(ValueError, match="sm: 70; pinned configurations exist for 80, 86"):
        pinned.pinned_config("select_kernel", 70)
    with pytest.raises(ValueError, match="kernel: 'fast'; pinned configurations exist for padded_scores_kernel"):
        pinned.pinned_config("fast", 90)


def test_a_pin_is_an_argument_of_the_operator(monkeypatch):
    """So compiled code made before a pin is not used after it."""
    monkeypatch.setattr(pins, "_tuning", {})
    assert pinned.tuning_of("bounded") == pinned.tuning_of("stock") == "live"
    for tuner in pinned.TUNERS["bounded"].values():
        monkeypatch.setattr(tuner, "configs", list(tuner.configs))
    pinned.pin("bounded", 90)
    assert bounded_scores_kernel.configs == [pinned.pinned_config("bounded_scores_kernel", 90)]
    assert re.fullmatch("PROGRAMS: .*; SHORT: .*", pinned.tuning_of("bounded")) and pinned.tuning_of("stock") == "live"


@pytest.mark.parametrize("sm", [90, 120])
def test_pinned_configurations_compile_without_spills(sm):
    made = examples(sm)
    assert all(set(e.args) == {p.name for p in e.kernel.params} for e in made), "whole calls"
    chosen = [e for e in made if e.pinned and "batch=64" in e.name]
    assert len(chosen) == 3
    for example in chosen:
        row = compile_row(specialise(example.kernel, example.args, example.config, sm), sm)
        assert row["fits"] and row["spills"] == row["stack"] == 0, example.name
        matrix = {"HMMA", "HGMMA", "UTCMMA"} & set(row["instructions"])
        assert bool(matrix) == ("scores" in example.name)
        assert ("LDGSTS" in row["instructions"]) == example.name.startswith("bounded"), "pages are fetched ahead"
