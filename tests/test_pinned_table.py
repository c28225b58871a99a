"""pinned.json as it stands and as it is read: which entry serves a call, and where each comes from."""

import json
import re

import pytest

from capturebook.kernels.sparse_mla import pinned
from capturebook.kernels.sparse_mla.gluon_plan import WGMMA_CONFIGS, plan
from capturebook.measure import tune


def test_entries_are_for_heads_and_fewer_and_the_widest_for_more(monkeypatch):
    entries = [(16, 4, "16 to 4"), (16, None, "16"), (64, 8, "64 to 8"), (64, None, "64"), (128, None, "128")]
    made = [{"max_heads": heads, "source": text} | ({"max_batch": n} if n else {}) for heads, n, text in entries]
    table = {"mma": {"90": made, "120": [made[3]], "121": [made[4]]}}
    monkeypatch.setattr(pinned, "_text", lambda: json.dumps(table))

    def served(heads, batch, sm=90):
        return pinned.pinned_entry("mma", sm, heads, batch)["source"]

    heads = (8, 16, 17, 64, 65, 128, 256)
    assert [served(n, 4) for n in heads] == ["16 to 4"] * 2 + ["64 to 8"] * 2 + ["128"] * 3
    assert [served(n, 9) for n in heads] == ["16"] * 2 + ["64"] * 2 + ["128"] * 3
    assert [served(64, 1, sm) for sm in (86, 120, 121)] == ["64", "64", "128"], "its own entries, else of one like it"
    with pytest.raises(ValueError, match="^pinned.json: no entry of mma on sm_80 covers heads=64, batch=1$"):
        served(64, 1, 80)


def test_the_table_is_in_order_and_covers_every_batch():
    for kernel, targets in json.loads(pinned._text()).items():
        for sm, entries in targets.items():
            limits = [(one["max_heads"], one.get("max_batch", 2**20)) for one in entries]
            assert limits == sorted(set(limits)), (kernel, sm)
            assert {heads for heads, batch in limits if batch == 2**20} == {heads for heads, _ in limits}, (kernel, sm)


@pytest.mark.parametrize("name", ["mma", "simt", "mma_fp8", "simt_fp8", "mma_v32"])
@pytest.mark.parametrize("sm", [80, 90, 100, 120])
def test_a_bucket_of_128_heads_leaves_64_and_fewer_what_they_had(monkeypatch, name, sm):
    kernel, _, cache = name.partition("_")
    batches = (1, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 256, 1000)

    def served(heads):
        return [pinned.pinned_entry(kernel, sm, heads, batch, cache or "bf16") for batch in batches]

    before = {heads: served(heads) for heads in (8, 16, 32, 64)}
    table = json.loads(pinned._text())
    table[name][str(sm)] = [{**one, "max_heads": min(one["max_heads"], 64)} for one in table[name][str(sm)]]
    wide = tune.merged(table, name, sm, 128, {8: {"source": "8"}, 64: {"source": "64"}})
    monkeypatch.setattr(pinned, "_text", lambda: json.dumps(wide))
    for heads, entries in before.items():
        assert [one["source"] for one in served(heads)] == [one["source"] for one in entries]
        assert [one.get("config") for one in served(heads)] == [one["config"] for one in entries]
    for heads in (65, 128, 256):
        assert [one["source"] for one in served(heads)] == ["8" if batch <= 8 else "64" for batch in batches]


def test_every_entry_says_how_it_was_chosen_and_of_how_many():
    for kernel, targets in json.loads(pinned._text()).items():
        for entries in targets.values():
            for one in entries:
                assert re.match("timed on an|chosen by|by hand, 20", one["source"]), (kernel, one["source"])
                if "timed" in one:
                    assert f"the best of {len(one['timed'])} candidates" in one["source"], (kernel, one["source"])


@pytest.mark.parametrize("cache", WGMMA_CONFIGS)
def test_gluon_calls_are_launched_with_the_table_s_entry(cache):
    """One for all heads and batches: a second would not be looked at."""
    (entry,) = json.loads(pinned._text())[pinned.entry_name("wgmma", cache)]["90"]
    for batch, heads in ((16, 64), (32, 128), (256, 64)):
        config = plan(batch, heads, 128, 512, cache).config
        assert {"kwargs": config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages} == entry[
            "config"
        ]
