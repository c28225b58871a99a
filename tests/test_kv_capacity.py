"""KV capacity: bytes against the cache formats and the layers' own weights, tokens by hand, refusals."""

import math

import pytest

from capturebook.kernels.indexer import formats as keys
from capturebook.kernels.sparse_mla import formats
from capturebook.measure import kv_capacity as kv
from capturebook.report.figures_decode_story import capacity
from capturebook.subjects.decode_step.shapes import SIZES
from capturebook.subjects.decode_step.weights import names_of


def test_rows_are_those_of_the_caches():
    for page in (256, 64, 2):
        assert kv.row_bytes("fp8", page) * page == formats.page_stride(page)
    csa = formats.page_stride(64) / 256 + keys.PAGE_BYTES / 256
    assert kv.token_bytes("csa", kv.Pools()) == csa == 179.25
    assert kv.token_bytes("hca", kv.Pools()) == formats.page_stride(2) / 256 == 6.75
    assert kv.token_bytes("csa", kv.Pools("bf16", "bf16")) == (1024 + 256) / 4
    assert kv.token_bytes("swa", kv.Pools(window="kept")) == formats.page_stride(256) / 256
    assert kv.token_bytes("swa", kv.Pools()) == 0


def test_parameters_are_those_of_the_layers():
    """One GPU has all, and of eight each has what the decode step's rank of eight has; with data-parallel attention all
    heads with their projections, that is the backbone of one GPU that is alone."""
    for gpus, attention in ((1, "tensor"), (8, "tensor"), (1, "data"), (8, "data")):
        ours = dict.fromkeys(("experts", "backbone", "bf16", "mHC"), 0)
        for kind, layers in kv.LAYERS.items():
            alone = names_of(SIZES["flash"].rank(1), kind, "score")
            for name, (size, what) in names_of(SIZES["flash"].rank(gpus), kind, "score").items():
                group = "experts" if name.partition(".")[0] in ("experts", "shared") else "backbone"
                if group == "backbone" and attention == "data":
                    size = alone[name][0]
                if name.endswith(".mix"):
                    group = "mHC"
                elif "compress" in name or name in ("router", "index.weights"):
                    group = "bf16"
                if what == "linear":
                    ours[group] += layers * math.prod(size)
        ours["bf16"] += 2 * 129280 * 4096 // gpus
        assert {n: shared // gpus + repeated for n, (_, shared, repeated) in kv.parameters(attention).items()} == ours
    assert sum(shared + repeated for _, shared, repeated in kv.parameters().values()) == pytest.approx(284e9, rel=0.01)


def test_tokens_by_hand():
    pools, context = kv.Pools(), 4096
    request = 21 * (4096 * 179.25 + 128 * 585 + 4 * 20480) + 20 * (4096 * 6.75 + 128 * 585 + 4 * 131072)
    request += 2 * 128 * 585
    free = 0.9 * 150e9 - kv.weight_bytes(8)
    assert kv.tokens(150e9, 8, 0.9, pools, context) == pytest.approx(free / request * 4096)
    whole = 43 * 64 * 512 * (1024 + 1024) + 43 * 8 * 1024 * 4096  # bytes of all heads and their output, in fp8
    data = 8 * (free - 7 / 8 * whole) / request * 4096
    assert kv.tokens(150e9, 8, 0.9, kv.Pools(attention="data"), context) == pytest.approx(data)
    assert kv.tokens(100e9, 1, 0.9, pools) == 0, "the weights of one GPU alone are larger"
    assert sum(row["share"] for row in kv.by_layer(pools, context)) == pytest.approx(1)
    assert sum(row["request_bytes"] for row in kv.by_layer(pools, context)) == pytest.approx(request)


def test_layers_of_each_format_with_each_window():
    """What a token takes of the model is that of its layers, for every way to keep the caches."""
    ways = kv.kept()
    assert {(p.cache, p.keys, p.window) for p in ways} == {
        (cache, cache, window) for cache in ("fp8", "bf16") for window in ("evicted", "kept")
    }
    whole = {(row["cache"], row["window"]): row["bytes_per_token"] for row in kv.table()}
    for pools in ways:
        rows = kv.by_layer(pools, 8192)
        total = sum(row["layers"] * row["bytes_per_token"] for row in rows)
        assert total == pytest.approx(whole[pools.cache, pools.window])
        assert (rows[0]["bytes_per_token"] > 0) == (pools.window == "kept")
    shown = capacity().text
    for cells in (("bf16", "kept", "csa", "21", "1344.00"), ("fp8", "evicted", "hca", "20", "6.75")):
        assert any(line.split()[:5] == list(cells) for line in shown.splitlines()), cells


def test_more_of_everything_fits_more():
    rows = {
        tuple(row[n] for n in ("gpu", "gpus", "fraction", "cache", "window", "attention")): row for row in kv.table()
    }
    assert len(rows) == 2 * 4 * 2 * 5
    for (gpu, gpus, fraction, *way), row in rows.items():
        assert (row["over_story"] is None) == (gpus != 8)
        if fraction == 0.8:
            assert rows[gpu, gpus, 0.9, *way]["tokens"] >= row["tokens"]
        if gpus < 8:
            assert rows[gpu, 2 * gpus, fraction, *way]["tokens"] >= row["tokens"]


@pytest.mark.parametrize("name", ["cache", "keys", "window", "attention"])
def test_refusals(name):
    with pytest.raises(ValueError, match=f"^{name}: 'fp4'; allowed: "):
        kv.Pools(**{name: "fp4"})
    with pytest.raises(ValueError, match="^fraction: 1.5; allowed: above 0, up to 1$"):
        kv.tokens(150e9, 8, 1.5, kv.Pools())
