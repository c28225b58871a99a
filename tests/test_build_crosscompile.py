"""Cross-compilation without a GPU: specialisation, machine code, limits."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import triton

import build_examples
from capturebook.measure import build_cache, crosscompile, limits, resources, sass
from capturebook.measure.specialise import specialise


class Ctx:
    """The part of a probe's context that these jobs use."""

    def __init__(self, target, options, **args):
        self.probe = SimpleNamespace(subject=SimpleNamespace(target=target, options=options))
        self.args, self.fields, self.stages = args, {}, []

    def stage(self, name):
        self.stages.append(name)


def compilations(examples="build_examples:examples", targets=(90,)):
    return crosscompile.plan(Ctx(examples, {}, targets=targets))["payload"]["compilations"]


def row(kernel="gather_dot", pinned=True, target=90, examples="build_examples:examples", cache=""):
    entry = next(e for e in compilations(examples, [target]) if (e["kernel"], e["pinned"]) == (kernel, pinned))
    ctx = Ctx(examples, entry, cache=cache)
    result = crosscompile.run(ctx)
    assert result["status"] == "pass" and ctx.stages == ["build"]
    assert entry.items() <= result["payload"].items() and ctx.fields["payload"] == entry
    return result["payload"]


def test_a_launch_on_every_target_shows_its_own_matrix_instructions():
    family = {80: "HMMA", 90: "HGMMA", 100: "UTCMMA", 120: "HMMA"}
    for sm, expected in family.items():
        found = row(target=sm)
        assert found["target"] == f"sm_{sm}" and found["pinned"]
        matrix = [name for name in found["instructions"] if name.endswith("MMA")]
        assert matrix == [expected]
        assert found["instructions"]["LDGSTS"] > 0
        assert 0 < found["registers"] <= 255
        assert found["shared_limit"] == limits.TABLE[sm].shared_per_cta
        assert found["fits"] == (found["occupancy"] > 0)


def test_no_cp_async_without_divisible_pointers():
    """The symptom that makes a row of another kernel: attributes not taken from the call."""
    aligned = row(target=80)
    unaligned = row(target=80, examples="build_examples:unaligned_examples")
    assert aligned["arguments"]["rows"] == "*bf16 %16" and unaligned["arguments"]["rows"] == "*bf16"
    assert aligned["instructions"]["LDGSTS"] > 0 and "LDGSTS" not in unaligned["instructions"]


def test_specialisation_follows_the_values_of_the_call():
    example = build_examples.examples(90)[0]

    def seen(n):
        return specialise(example.kernel, {**example.args, "n": n}, None, 90).arguments()

    assert [seen(n)["n"] for n in (1, 48, 3, 2**40 + 1)] == ["=1", "i32 %16", "i32", "i64"]
    assert seen(1)["x"] == "*fp32 %16" and seen(1)["BLOCK"] == "=1024"


def test_a_kernel_below_autotune_and_heuristics_is_bound_with_what_they_set():
    kernel = triton.heuristics({"BLOCK_H": lambda args: args["D"] // 4})(build_examples.gather_dot)
    args = {name: value for name, value in build_examples.gather_dot_args().items() if name != "BLOCK_H"}
    found = specialise(kernel, args, build_examples.gather_dot.configs[0], 90)
    assert found.arguments()["BLOCK_H"] == "=16" and found.arguments()["BLOCK_N"] == "=32"
    assert found.options.num_warps == 4 and found.options.num_stages == 3


def test_the_stand_in_driver_is_gone_after_specialising():
    driver = triton.runtime.driver
    before = driver._active
    example = build_examples.examples(90)[0]
    specialise(example.kernel, example.args, None, 120)
    assert driver._active is before


def test_more_shared_memory_than_a_cta_may_have_does_not_fit():
    """triton.compile accepts it: only the table tells."""
    found = compile_with(triton.Config({"BLOCK_N": 128}, num_warps=4, num_stages=3), 120, width=512, heads=16)
    assert found["shared"] > found["shared_limit"] == 99 * 1024
    assert not found["fits"] and found["occupancy"] == 0 and found["limiter"] == "shared"


def test_a_forced_register_limit_spills_and_the_row_says_so():
    found = compile_with(triton.Config({"BLOCK_N": 32}, num_warps=4, num_stages=2, maxnreg=64), 80)
    assert found["registers"] <= 64 and found["stack"] > 0 and found["spills"] > 0
    assert found["instructions"]["STL"] > 0 and found["instructions"]["LDL"] > 0


def compile_with(config, sm, **shape):
    args = build_examples.gather_dot_args(**shape)
    return crosscompile.compile_row(specialise(build_examples.gather_dot, args, config, sm), sm)


def test_plan_lists_configurations_and_marks_the_pinned_one():
    found = compilations(targets=(90,))
    assert [(e["kernel"], e["default"], e["pinned"]) for e in found] == [
        ("add_one", True, False),
        ("gather_dot", True, False),
        ("gather_dot", False, True),
    ]
    assert found[1]["config"] == "BLOCK_N=32 num_warps=4 num_stages=3" and found[0]["config"] == "default"


def test_a_plan_that_no_longer_holds_is_refused():
    entry = {**compilations()[0], "config": "BLOCK=1 num_warps=1"}
    with pytest.raises(RuntimeError, match="example 0 is no longer what was planned: now .*'config': 'default'"):
        crosscompile.run(Ctx("build_examples:examples", entry, cache=""))


def test_a_row_is_kept_and_a_changed_call_is_another(tmp_path):
    first = row("add_one", False, cache=str(tmp_path))
    again = row("add_one", False, cache=str(tmp_path))
    assert (first.pop("cached"), again.pop("cached")) == (False, True)
    assert first == again
    assert row("add_one", False, target=80, cache=str(tmp_path))["cached"] is False
    other = row("add_one", False, examples="build_examples:unaligned_examples", cache=str(tmp_path))
    assert other["cached"] is False and other["arguments"]["x"] == "*fp32"
    assert len(list(Path(tmp_path).glob("*.json"))) == 3


def test_the_cache_key_names_every_part(tmp_path, monkeypatch):
    assert build_cache.key("ab", "c") != build_cache.key("a", "bc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build_cache.default_folder() == tmp_path / "capturebook" / "build"


def test_ptxas_log_is_read_by_its_own_words():
    text = """ptxas info    : Function properties for k
    296 bytes stack frame, 320 bytes spill stores, 604 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 408 bytes cmem[0]"""
    usage = resources.from_ptxas_log(text)
    assert usage == resources.Usage(255, 296, 320, 604)
    assert usage.spills == 924
    with pytest.raises(ValueError, match="0 stack lines and 0 register lines"):
        resources.from_ptxas_log("")


def test_what_ptxas_says_again_of_a_compiled_kernel_is_what_it_said():
    """`loaded` reads spills this way, on a GPU, from a kernel that was compiled elsewhere."""
    config = triton.Config({"BLOCK_N": 32}, num_warps=4, num_stages=2, maxnreg=64)
    with resources.ptxas_log() as log:
        compiled = specialise(build_examples.gather_dot, build_examples.gather_dot_args(), config, 90).compile()
    first = resources.from_ptxas_log(log.getvalue())
    assert first.spills > 0 and resources._ptxas_again(compiled) == first


def test_opcodes_are_counted_at_instructions_only():
    text = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;        /* 0x0 */
        /*0010*/              @!P0 LDGSTS.E.BYPASS.128 [R3], desc[UR4][R2.64] ;
        /*0020*/             @!UPT UIADD3 URZ, UPT, UPT, URZ, URZ, URZ ;
        /*0030*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24 ; /* HMMA. */
        /*0040*/             @P1 HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*1880*/                   UTCHMMA gdesc[UR24], gdesc[UR46], tmem[UR7] ;
    """
    assert sass.count(text) == {"LDGSTS": 1, "HGMMA": 1, "HMMA": 1, "UTCMMA": 1, "total": 6}
