"""Memory of a point of the decode step: arithmetic against tensors and a recorded run, and what does not fit."""

from types import SimpleNamespace

import pytest

from capturebook.chain.folder import RunFolder
from capturebook.measure import decode_memory, decode_plan, decode_sweep, several_places
from capturebook.measure.decode_point import DEFAULTS, LAYERS
from capturebook.measure.rows import place_name
from capturebook.params import load_preset, validate
from capturebook.subjects.decode_step.shapes import KINDS
from capturebook.subjects.decode_step.step import assemble

GIB = 2**30


@pytest.mark.parametrize("formats", ["bf16", "fp8"])
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_those_of_the_tensors(kind, formats):
    step = DEFAULTS | {"size": "small", "experts": formats, "cache": formats, "keys": formats}
    batch, context = 3, 1000
    stack = assemble([kind] * 2, **step, batch=batch, context=context, max_context=2048, device="cpu")
    need = decode_memory.needed(kind, step, batch, context, 2)
    weights = [tensor for layer in stack.layers for tensor in layer.attention.weights.values()]
    assert need["weights"] == sum(t.numel() * t.itemsize for t in weights)
    states = [layer.attention.state for layer in stack.layers]
    kept = [getattr(state, name) for state in states for name in state.__dataclass_fields__]
    assert need["caches"] == sum(t.numel() * t.itemsize for t in kept if t is not None)
    assert need["judge"] == sum(t.numel() * t.itemsize for t in states[0].wide().tensors().values())


def test_bytes_are_those_that_an_h200_recorded(repo):
    records, _ = RunFolder.open(repo / "outputs" / "h200-decode-step").records()
    sweeps = [record for record in records if record.payload.get("places") and record.status == "pass"]
    assert sweeps
    for record in sweeps:
        asked, payload = record.subject.options, record.payload
        for place in asked["places"]:
            found = payload["places"].get(place_name(place), {})
            if "weight_bytes" in found:
                need = decode_memory.needed(asked["layer"], payload["step"], place["batch"], place["context"], 1)
                assert (need["weights"], need["caches"]) == (found["weight_bytes"], found["state_bytes"])


def test_what_does_not_fit():
    need = {"weights": 20 * GIB, "caches": 30 * GIB, "judge": 40 * GIB, "work": 2 * GIB}
    assert decode_memory.misfit(need, 92 * GIB, drawn=False) == ""
    assert decode_memory.misfit(need, 72 * GIB, drawn=True) == "", "weights of the place before are these"
    why = "does not fit: 92.0 GiB at least (weights 20.0, caches 30.0, judge 40.0, work 2.0), 72.0 to be used"
    assert decode_memory.misfit(need, 72 * GIB, drawn=False) == why
    assert decode_memory.misfit(need, 140 * GIB, drawn=False, memory_gib=72.0) == why
    assert decode_memory.misfit(need, 140 * GIB, drawn=False, memory_gib=100.0) == ""


@pytest.mark.parametrize(("name", "gib"), [("decode_step", 75.0), ("decode_step_tp1", 91.4)])
def test_the_presets_largest_places_fit_an_h200(name, gib):
    """All batches up to 256 and contexts up to 131072 are planned, and 139.8 GiB hold each of them."""
    params = validate(load_preset(name))
    asked = [
        p.subject.options for p in decode_plan.plan_decode(params, params.options) if "places" in p.subject.options
    ]
    at = [(a, place) for a in asked for place in a["places"]]
    for layer in ("csa", "hca"):
        places = {(place["batch"], place["context"]) for a, place in at if a["layer"] == layer}
        assert places >= {(b, c) for b in (1, 64, 256) for c in (2048, 8192, 32768, 131072)} | {(8, 8192)}
    needs = [
        decode_memory.needed(a["layer"], DEFAULTS | a["step"], place["batch"], place["context"], LAYERS)
        for a, place in at
    ]
    most = max(sum(need.values()) for need in needs)
    assert most / GIB == pytest.approx(gib, abs=0.05)
    assert all(decode_memory.misfit(need, int(139 * GIB), drawn=False) == "" for need in needs)


def test_a_place_that_cannot_fit_is_skipped_and_says_so(monkeypatch):
    """Nothing is made on the GPU for it; the record says what it would take."""
    for module in (decode_sweep, several_places):
        monkeypatch.setattr(module, "foreign_processes", list)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (20 * GIB, 140 * GIB))
    places = [{"batch": 256, "context": 131072, "max_context": 131072, "variants": {}, "profile": False}]
    options = {"layer": "csa", "step": {"tp": 1, "experts": "fp8"}, "places": places}
    probe = SimpleNamespace(subject=SimpleNamespace(options=options))
    ctx = SimpleNamespace(
        probe=probe, fields={}, args={"samples": 5, "memory_gib": 0.0}, seed=0, stage=lambda name: None
    )
    ended = decode_sweep.run(ctx)
    assert ended["status"] == "skipped" and ended["reason"].startswith("does not fit: 91.4 GiB at least (weights 18.9")
    (place,) = ctx.fields["payload"]["places"].values()
    assert place["status"] == "skipped"
