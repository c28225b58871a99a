"""Pinned tunings as `capturebook tune` makes them: candidates, the choice among planted times, the table written."""

import json

import pytest

from capturebook import cli
from capturebook.cli import tune as command
from capturebook.kernels.sparse_mla import pinned
from capturebook.kernels.sparse_mla.launch import split_count
from capturebook.kernels.sparse_mla.op import tuner_of
from capturebook.kernels.sparse_mla.shapes import SHAPES, shape_of
from capturebook.measure import sweep_point, tune
from capturebook.params import Params
from capturebook.records import Record

FACTS = {"gpu": {"name": "NVIDIA H200", "sm": "sm_90"}, "torch": "2.11.0", "triton": "3.6.0"}


def record(bucket, sm, us_of, status="pass", **more):
    """What the GPU would have recorded, with times from `us_of(variant)`."""
    (probe,) = tune.plan_tune([bucket], Params(samples=5))
    variants = bucket.variants(sm)
    samples = {name: [us_of(v) + noise for noise in (0.3, 0.0, 0.1)] for name, v in variants.items()}
    lists = shape_of(bucket.shape)
    wide = lists.inputs(tune.CONTEXT)
    payload = {"batch": bucket.batch, "heads": bucket.heads, "context": tune.CONTEXT, "cache": bucket.cache}
    payload |= {"lists": lists.title, "entries": float(wide["window"] + wide["topk"])}
    payload["variants"] = {name: {**v, "config_kwargs": v["config"], "config": name} for name, v in variants.items()}
    if status != "pass":
        samples, payload = {}, {}
    times = dict(started="2026-11-30T10:00:00Z", ended="2026-11-30T10:01:00Z")
    common = dict(run="r", probe=probe.id, nonce="n", kind="sweep", subject=probe.subject)
    return Record(status=status, samples=samples, payload=payload, **common, **times, **more)


@pytest.mark.parametrize("cache, shape, width", [("bf16", "flash", 640), ("fp8", "pro", 1152), ("v32", "v32", 2048)])
@pytest.mark.parametrize("sm, limit", [(80, 166_912), (90, 232_448), (120, 101_376)])
def test_candidates_fit_and_no_split_is_less_than_a_tile(cache, shape, width, sm, limit):
    from capturebook.kernels.sparse_mla import mma, mma_fp8, mma_v32

    shared = {"bf16": mma, "fp8": mma_fp8, "v32": mma_v32}[cache].shared_bytes
    found = tune.candidates(tune.Bucket("mma", cache, 64, 8, shape), sm)
    assert len(found) == len({(str(config), entries) for config, entries in found}) >= 4
    for config, entries in found:
        assert config in tuner_of("mma", cache).configs and shared(config, sm) <= limit
        assert entries % config.kwargs["BLOCK_N"] == 0 and entries >= config.kwargs["BLOCK_N"]
        assert 1 <= split_count("mma", 8, 64, width, entries) == -(-width // entries)
    assert {entries for _, entries in tune.candidates(tune.Bucket("mma", cache, 64, 128, shape), sm)} >= {width}
    narrow = tune.candidates(tune.Bucket("mma", cache, 8, 8, shape), sm)
    assert {config.kwargs["BLOCK_H"] for config, _ in narrow} == {16}


def test_shapes_are_those_of_the_kernels_with_their_heads():
    """Where importing the kernels would bring torch; mixed lengths are none to tune on."""
    assert {name: SHAPES[name].heads or 64 for name in tune.SHAPES} == tune.SHAPES
    wide = {name: SHAPES[name].inputs(tune.CONTEXT) for name in SHAPES}
    most = max(lists["window"] + lists["topk"] for name, lists in wide.items() if not SHAPES[name].heads)
    assert wide["flash"]["window"] + wide["flash"]["topk"] == most, "no layer of V4-Flash has wider lists"


@pytest.mark.parametrize(
    "shape, cache, heads, lists",
    [("flash", "fp8", 64, (128, 512)), ("pro", "fp8", 128, (128, 1024)), ("v32", "v32", 128, (0, 2048))],
)
def test_candidates_read_full_lists_of_the_shape(shape, cache, heads, lists):
    (probe,) = tune.plan_tune([tune.Bucket("mma", cache, heads, 2, shape)], Params(samples=5))
    size = sweep_point.Size(1, 512, 2048)
    (inputs,) = sweep_point.draw(probe.subject.options, size, 0, "cpu")
    assert inputs.q.shape[:2] == (2, heads)
    assert inputs.window_lengths.tolist() == [lists[0]] * 2 and inputs.extra_lengths.tolist() == [lists[1]] * 2
    assert (inputs.window_indices >= 0).all() and (inputs.extra_indices >= 0).all()


def test_candidates_fill_the_gpu_and_no_more():
    """128 programs of 64 heads are one wave: no splits; eight requests of V3.2 take eight splits to fill the GPU."""
    for batch, wanted in ((64, {1024, 2048}), (8, {128, 256, 512, 1024})):
        found = tune.candidates(tune.Bucket("mma", "v32", 128, batch, "v32"), 90)
        assert {entries for config, entries in found if config.kwargs["BLOCK_H"] == 64} >= wanted
        for config, entries in found:
            programs = batch * -(-128 // config.kwargs["BLOCK_H"]) * split_count("mma", batch, 128, 2048, entries)
            assert programs <= 1024, (batch, str(config), entries)


def test_the_fastest_wins_and_of_equals_the_one_with_fewest_splits():
    variants = {"a": {"entries": 32}, "b": {"entries": 64}, "c": {"entries": 128}}
    assert tune.winner({"a": [9.0, 8.0, 10.0], "b": [9.5] * 3, "c": [12.0] * 3}, variants) == "a"
    assert tune.winner({"a": [9.0] * 3, "b": [9.05] * 3, "c": [12.0] * 3}, variants) == "b"


def test_an_entry_says_what_was_timed_where_and_when():
    bucket = tune.Bucket("mma", "fp8", 64, 8)
    fast = {"BLOCK_H": 16, "BLOCK_N": 32}
    made = tune.entry(
        record(
            bucket, 90, lambda v: 10.0 if fast.items() <= v["config"]["kwargs"].items() and v["entries"] == 32 else 20.0
        ),
        FACTS,
    )
    assert made["config"]["kwargs"].items() >= fast.items() and made["entries"] == 32
    assert made["source"].startswith("timed on an NVIDIA H200 on 2026-11-30 (torch 2.11.0, triton 3.6.0): 10.10 us")
    assert made["source"].endswith(
        f"at batch 8, 64 heads, 640 entries cold in L2 (V4-Flash, 128 + 512 tokens), the best of {len(made['timed'])} "
        "candidates"
    )
    assert len(made["timed"]) == len(bucket.variants(90)) and list(made["timed"].values()) == sorted(
        made["timed"].values()
    )
    with pytest.raises(ValueError, match="^not run: the GPU is shared$"):
        tune.entry(record(bucket, 90, lambda v: 1.0, "not_run", reason="the GPU is shared"), FACTS)


def test_entries_replace_those_of_the_same_heads_and_no_others():
    old = [{"max_heads": 16, "source": "n"}, {"max_heads": 64, "max_batch": 16, "source": "a"}]
    old += [{"max_heads": 64, "source": "b"}]
    table = {"mma": {"90": old, "80": [1]}}
    same = tune.merged(table, "mma", 90, 64, {8: {"source": "8"}, 64: {"source": "64"}})
    new = [{"max_heads": 64, "max_batch": 8, "source": "8"}, {"max_heads": 64, "source": "64"}]
    assert same == {"mma": {"90": [old[0], *new], "80": [1]}}
    narrow = tune.merged(table, "mma", 90, 16, {4: {"source": "4"}, 32: {"source": "32"}})["mma"]["90"]
    assert narrow[:2] == [{"max_heads": 16, "max_batch": 4, "source": "4"}, {"max_heads": 16, "source": "32"}]
    assert narrow[2:] == old[1:]
    wide = tune.merged(table, "mma", 90, 128, {1: {"source": "1"}})["mma"]["90"]
    assert wide == [*old, {"max_heads": 128, "source": "1"}]
    between = tune.merged(table, "mma", 90, 32, {1: {"source": "1"}})["mma"]["90"]
    assert between == [old[0], {"max_heads": 32, "source": "1"}, *old[1:]]
    made = tune.merged({}, "mma_fp8", 90, 64, {1: {"source": "1"}})
    assert made == {"mma_fp8": {"90": [{"max_heads": 64, "source": "1"}]}}


def test_a_pinned_number_of_entries_reaches_the_launch_and_the_cache_key(monkeypatch):
    import triton

    monkeypatch.setattr(pinned, "_tuning", {})
    monkeypatch.setattr(pinned, "_entries", {})
    kernel = tuner_of("mma", "fp8")
    own = triton.autotune(configs=list(kernel.configs), key=["HEADS"])(kernel.fn)
    entry = {"config": {"kwargs": {"BLOCK_H": 16, "BLOCK_N": 32}, "num_warps": 4, "num_stages": 2}, "entries": 96}
    pinned.pin_entry(own, entry)
    assert pinned.pinned_entries("mma", "fp8") == 96 and pinned.pinned_entries("mma") == 0
    assert "entries: 96" in pinned.tuning_of("mma", "fp8")
    pinned.pin(own, own.configs[0])
    assert pinned.pinned_entries("mma", "fp8") == 0 and "entries" not in pinned.tuning_of("mma", "fp8")


class Pool:
    """Stands for the GPU's probes: planted times by batch."""

    us = {1: 9.0, 8: 12.0}

    def __init__(self, run, on_event):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def run(self, probes):
        points = [p.subject.options for p in probes]
        buckets = [
            tune.Bucket(*(point[name] for name in ("kernel", "cache", "heads", "batch", "shape"))) for point in points
        ]
        return [record(one, 90, lambda v, one=one: self.us[one.batch] + v["entries"]) for one in buckets]


@pytest.fixture
def on_h200(monkeypatch, tmp_path):
    """The command with stand-ins for GPU, timers and run folder: what it returns, shows and leaves in a table."""
    target = tmp_path / "pinned.json"
    target.write_text(command.PINNED.read_text())
    monkeypatch.setattr(command, "PINNED", target)
    monkeypatch.setattr(command, "gpu_uuid", lambda: "GPU-1")
    monkeypatch.setattr("capturebook.probes.ProbePool", Pool)
    made = Folder(tmp_path)
    monkeypatch.setattr("capturebook.chain.folder.RunFolder.create", lambda *args: made)

    def run(*words):
        assert cli.main(["tune", "--batches", "8,1", "--write", "--json", "--run-dir", str(tmp_path), *words]) == 0
        return json.loads(target.read_text())

    run.folder = made
    return run


@pytest.mark.parametrize(
    "words, name, heads, lists",
    [
        ((), "mma_fp8", 64, "640 entries cold in L2 (V4-Flash, 128 + 512 tokens)"),
        (("--cache", "bf16"), "mma", 64, "640 entries cold in L2 (V4-Flash, 128 + 512 tokens)"),
        (("--shape", "pro"), "mma_fp8", 128, "1152 entries cold in L2 (V4-Pro, 128 + 1024 tokens)"),
        (("--shape", "pro", "--heads", "16"), "mma_fp8", 16, "1152 entries cold in L2 (V4-Pro, 128 + 1024 tokens)"),
        (("--shape", "v32"), "mma_v32", 128, "2048 entries cold in L2 (V3.2, 2048 tokens)"),
    ],
)
def test_the_command_writes_the_table(on_h200, capsys, words, name, heads, lists):
    before = json.loads(command.PINNED.read_text())
    table = on_h200(*words)
    shown = json.loads(capsys.readouterr().out)
    mine = [e for e in table[name]["90"] if e["max_heads"] == heads]
    assert [(e.get("max_batch"), e["source"]) for e in mine] == [(1, shown[0]["source"]), (None, shown[1]["source"])]
    assert f"at batch 8, {heads} heads, {lists}" in mine[1]["source"]
    assert mine[0]["config"]["kwargs"]["BLOCK_N"] == mine[0]["entries"]
    others = [e for e in table[name]["90"] if e["max_heads"] != heads]
    assert others == [e for e in before[name]["90"] if e["max_heads"] != heads]
    del table[name]["90"], before[name]["90"]
    assert table == before
    assert on_h200.folder.noted == {"command": "tune"}, "its report opens with that"


class Folder:
    info = {"provenance": FACTS}

    def __init__(self, path):
        self.path = path

    def note(self, **facts):
        self.noted = facts

    def finish(self):
        pass


def test_bad_words_are_one_line(monkeypatch, capsys):
    monkeypatch.setattr(command, "gpu_uuid", lambda: "GPU-1")
    assert cli.main(["tune", "--batches", "8,0"]) == 2
    assert "--batches: given '8,0'; allowed: numbers above 0, each once" in capsys.readouterr().err
    assert cli.main(["tune", "--shape", "v32", "--cache", "fp8"]) == 2
    assert "--cache: given 'fp8'; allowed: none, where --shape is v32" in capsys.readouterr().err
    assert cli.main(["tune", "--shape", "v32", "--kernel", "simt"]) == 2
    assert "--kernel: given 'simt'; allowed: mma, where --shape is v32" in capsys.readouterr().err
    assert cli.main(["tune", "--heads", "0"]) == 2 and "heads" in capsys.readouterr().err
    monkeypatch.setattr(command, "gpu_uuid", lambda: None)
    assert cli.main(["tune"]) == 2 and "needs a CUDA GPU" in capsys.readouterr().err


def test_given_configurations_are_compiled_once_each_into_tritons_cache(monkeypatch, tmp_path):
    """The launches' own specialisation: what a first call on sm_90 looks for. No GPU is needed to compile."""
    import torch
    import triton

    from capturebook.measure.ahead import compile_ahead

    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    config = {"kwargs": {"BLOCK_N": 8}, "num_warps": 4, "num_stages": 1}
    given = [{"kernel": "simt", "tuning": "given", "config": config, "entries": entries} for entries in (32, 64, 640)]
    point = {"variants": dict(zip("abc", given)), "shape": "flash", "heads": 8, "cache": "bf16"}
    compile_ahead([point | {"batch": 2, "context": 64}])
    # splits of 32 and of 64 entries differ in their number alone; a single one writes the result, another kernel
    assert len(list(tmp_path.rglob("simt_kernel.cubin"))) == 2
    # 20 splits are merged as a tile, 10 unrolled
    assert len(list(tmp_path.rglob("combine_kernel.cubin"))) == 2
