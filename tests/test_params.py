"""Parameters: what is refused, in which words; presets and --set."""

import datetime
import json
import os
import re
import subprocess
import sys
from itertools import pairwise

import papermill.iorw
import pytest
import yaml

from capturebook.kernels.indexer.pinned import TUNERS
from capturebook.kernels.sparse_mla.arguments import PATHS
from capturebook.params import (
    ParameterError,
    Params,
    apply_sets,
    describe,
    load_preset,
    preset_names,
    validate,
)
from capturebook.params.declared import BUILT_IN_KERNELS, INDEXER, INDEXER_KERNELS

NUMBERS = {row["name"]: row for row in describe() if row["type"] in ("int", "float") and " from " in row["allowed"]}
SHIPPED = [
    "cpu",
    "decode_step",
    "decode_step_tp1",
    "glue",
    "glue_mhc",
    "gpu",
    "h200",
    "indexer",
    "own_kernel",
    "rtx_pro_6000",
    "sparse_mla",
]


def refused(given: dict) -> list[str]:
    with pytest.raises(ParameterError) as caught:
        validate(given)
    return str(caught.value).split("\n")


@pytest.mark.parametrize(
    "name, given",
    [
        ("batches", [0]),
        ("batches", [1, "8"]),
        ("batches", [1.0]),
        ("batches", [True]),
        ("batches", []),
        ("batches", 8),
        ("heads", 12),
        ("heads", "64"),
        ("targets", [75]),
        ("kernels", ["no name"]),
        ("deadline", "60"),
        ("deadline", True),
        ("deadline", float("nan")),
        ("all_configs", 1),
        ("all_configs", "true"),
        ("question", None),
        ("run_dir", 7),
        ("subject", "examples/own_kernel.py"),
        ("options", {"not a name": 1}),
        ("env", {"A": 1}),
        ("env", {"": "x"}),
        ("env", {"A": "x\0y"}),
        ("env", {"A": "\udcff"}),
        ("options", {"a": float("nan")}),
        ("options", {"a": [float("inf")]}),
        ("options", {"a": "\udcff"}),
        ("kernels", ["simt", "zzz"]),
        ("question", "kernel=zzz"),
        ("preset", "z" * 65),
        ("preload", ["os; import sys"]),
        ("hypothesis", ""),
    ],
)
def test_a_value_that_cannot_be_used_is_one_line_with_name_given_and_allowed(name, given):
    (line,) = refused({name: given})
    assert line.startswith(f"parameter {name}: given ")
    assert f"given {json.dumps(given)}; allowed: " in line


INSIDE: dict = {"b": []}
INSIDE["b"].append(INSIDE)


@pytest.mark.parametrize(
    ("name", "given"),
    [("options", {"a": {1: 2}}), ("options", {"a": INSIDE}), ("options", {"a": datetime.date(2001, 1, 1)}),
     ("options", {"a": {1, 2}}), ("options", {"a": {(1, 2): 3}}), ("batches", [INSIDE]), ("seed", 10**5000),
     ("batches", [10**5000]), ("options", {"a": 2**1024}), ("run_dir", "\udcff")],
    ids=["number as key", "itself", "date", "set", "tuple as key", "itself in a list", "digits", "digits in a list",
         "bits", "no Unicode"],
)  # fmt: skip
def test_a_value_that_json_cannot_hold_is_refused_by_its_parameters_name(name, given):
    (line,) = refused({name: given})
    assert line.startswith(f"parameter {name}: given ") and "; allowed: " in line and len(line) < 300


def test_options_are_what_json_holds():
    held = {"a": ["ü", 1.5, True, None, {"b": 2**70}]}
    assert validate({"options": held}).options == held == json.loads(json.dumps(held))
    deep = json.loads("[" * 31 + "]" * 31)
    assert validate({"options": {"a": deep}}).options == {"a": deep}
    (line,) = refused({"options": {"a": [deep]}})
    assert "up to 32 levels deep" in line


def test_the_built_in_subjects_kernels_are_those_that_it_has():
    assert set(BUILT_IN_KERNELS) == set(PATHS)
    assert set(INDEXER_KERNELS) == set(TUNERS)
    assert validate({"subject": "own.py:build", "kernels": ["zzz"]}).kernels == ["zzz"]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_may_be_what_its_range_says_and_nothing_beyond(name):
    row = NUMBERS[name]
    low, high = (float(v) for v in row["allowed"].partition(" from ")[2].split(" to "))
    kind = int if row["type"] == "int" else float
    both = {"question": "compile=default"} if name == "error" else {}
    for good in (low, high):
        assert getattr(validate({**both, name: kind(good)}), name) == good
    for bad in (low - 1, high + 1):
        assert refused({**both, name: kind(bad)})[0].startswith(f"parameter {name}: given ")


def test_unknown_names_are_refused_with_the_nearest_known_one():
    assert refused({"contxts": [1]}) == ["parameter contxts: nobody declared it; did you mean contexts?"]
    (line,) = refused({"zzzz": 1})
    assert all(name in line for name in Params.model_fields)


def test_every_error_is_told_not_only_the_first():
    lines = refused({"heads": 3, "contxts": [1], "seed": -1})
    assert [line.split(":")[0] for line in lines] == ["parameter contxts", "parameter heads", "parameter seed"]


@pytest.mark.parametrize(
    "given, said",
    [
        ({"question": "context=9,max_context=8"}, "a context up to its max_context, 8"),
        (
            {"subject": INDEXER, "kernels": ["bounded"], "contexts": [8192, 262144]},
            "the largest of max_contexts, 131072",
        ),
        ({"subject": INDEXER, "kernels": ["bounded"], "contexts": [3]}, "from 4, one key, to"),
        ({"subject": INDEXER, "kernels": ["mma"]}, "stock, bounded with the indexer"),
        ({"error": 905}, "0 without a question"),
        ({"batches": [8, 8]}, "each value once"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "1"}}, "set this one for capturebook itself"),
        ({"question": "compil=default"}, "'compil=default' names no factor"),
        ({"question": "compile=fast"}, "'max-autotune'"),
        ({"question": "fullgraph=yes"}, "allowed: true, false"),
    ],
)
def test_contradictions_are_one_line_that_names_the_parameter(given, said):
    (line,) = refused(given)
    assert said in line
    assert any(line.startswith(f"parameter {name}: given ") for name in given)


def test_a_whole_number_is_a_number_but_text_and_truth_are_not():
    assert validate({"deadline": 5}).deadline == 5.0
    assert refused({"deadline": "5"}) and refused({"deadline": False})


def test_params_do_not_change_once_validated():
    with pytest.raises(ValueError):
        validate({}).seed = 3


def test_at_most_24_parameters_each_with_help_that_papermill_can_read():
    assert len(describe()) <= 24
    for row in describe():
        assert row["help"] and "=" not in row["help"] and "#" not in row["help"] and "\n" not in row["help"]


def test_set_takes_plain_text_for_text_and_json_otherwise():
    sets = ["question=compile=default,capture=global", "batches=[1, 2]", 'env={"A": "1"}', "preset=12", "deadline=1e3"]
    values = apply_sets({"seed": 4, "batches": [9]}, sets)
    assert values == {
        "seed": 4,
        "batches": [1, 2],
        "question": "compile=default,capture=global",
        "env": {"A": "1"},
        "preset": "12",
        "deadline": 1000.0,
    }
    assert validate(values).env == {"A": "1"}


def test_set_leaves_its_argument_alone_and_takes_a_name_once():
    before = {"seed": 4}
    assert apply_sets(before, ["seed=5", "batches=[2]"]) == {"seed": 5, "batches": [2]}
    assert before == {"seed": 4}
    with pytest.raises(ParameterError, match="^--set: seed is given twice; allowed: once$"):
        apply_sets(before, ["seed=5", "seed=6"])


def test_one_of_some_texts_is_text_as_well():
    assert apply_sets({}, ["cache=fp8"]) == {"cache": "fp8"}
    assert refused(apply_sets({}, ["cache=fp4"])) == ['parameter cache: given "fp4"; allowed: one of bf16, fp8']


@pytest.mark.parametrize(
    "text, said",
    [
        ("batches=[1, 2", "parameter batches: given [1, 2; allowed: a list of"),
        ("deadline=NaN", "parameter deadline: given NaN; allowed: a number"),
        ("all_configs=yes", "parameter all_configs: given yes; allowed: true or false"),
        ("batchs=[1]", "parameter batchs: nobody declared it; did you mean batches?"),
        ("seed", "--set: given 'seed'; allowed: name=value"),
    ],
)
def test_a_set_that_cannot_be_read_is_one_line(text, said):
    with pytest.raises(ParameterError) as caught:
        apply_sets({}, [text])
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_presets_are_valid_and_read_alike_by_papermill(name, repo):
    path = repo / "params" / f"{name}.yaml"
    values = load_preset(name)
    assert values == load_preset(str(path)) == yaml.safe_load(path.read_text())
    assert values == papermill.iorw.read_yaml_file(str(path))
    assert validate(values).preset == name


def test_the_shipped_presets_are_these():
    assert preset_names() == SHIPPED


def test_presets_state_the_machine_they_are_named_after():
    h200, pro = validate(load_preset("h200")), validate(load_preset("rtx_pro_6000"))
    assert 90 in h200.targets and 4 < h200.dram_tb_s < 4.8 and 700 < h200.tensor_tflops < 989
    assert pro.targets[0] == 120 and pro.dram_tb_s == 1.79
    for glue in (validate(load_preset(name)) for name in ("glue", "glue_mhc")):
        assert (glue.dram_tb_s, glue.tensor_tflops) == (h200.dram_tb_s, h200.tensor_tflops) and 64 in glue.batches
    other = validate(load_preset("gpu"))
    assert other.dram_tb_s == other.tensor_tflops == other.memory_gib == 0
    assert validate(load_preset("own_kernel")).subject == "examples/own_kernel.py:build"


def test_a_preset_is_read_without_the_conversions_of_yaml_1_1(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(
        "run_dir: no\npreset: 0123456\nhypothesis: 12:30:00\nquestion: on\n"
        "subject: 2026-11-30\ndeadline: 1e3\nall_configs: true\noptions: {a: null, b: 0x10, c: 1_000, d: -1.5}\n"
    )
    assert load_preset(path) == {
        "run_dir": "no",
        "preset": "0123456",
        "hypothesis": "12:30:00",
        "question": "on",
        "subject": "2026-11-30",
        "deadline": 1000.0,
        "all_configs": True,
        "options": {"a": None, "b": "0x10", "c": "1_000", "d": -1.5},
    }
    plain = yaml.safe_load(path.read_text())
    assert plain["run_dir"] is False and plain["preset"] == 42798, "YAML 1.1 as PyYAML reads it has changed"


NINES = "a: &a [1]\n" + "".join(f"{b}: &{b} [{', '.join(9 * [f'*{a}'])}]\n" for a, b in pairwise("abcdefghij"))


@pytest.mark.parametrize(
    "text, said",
    [
        ("seed: 1\nseed: 2\n", "line 2: seed is given twice"),
        ("- 1\n- 2\n", "is no mapping"),
        ("", "is no mapping"),
        ("1: 2\n", "is no mapping"),
        ("a: [1\nb: 2\n", "line 2: "),
        ("a: 1\n---\nb: 2\n", "line 2: "),
        ("? [a, b]\n: 1\n", "line 1: a list or mapping is no name"),
        ("a: " + "[" * 2000 + "]" * 2000, "nested too deep"),
        ("seed: 1\nall_configs: !!bool maybe\n", "line 2: all_configs: given !!bool maybe; allowed: true or false"),
        ("seed: !!int x\n", "line 1: seed: given !!int x; allowed: a whole number from 0 to 2147483647"),
        ("deadline: !!float x\n", "line 1: deadline: given !!float x; allowed: a number from 1 to 3600"),
        ("seed: 1" + "0" * 5000, "line 1: seed: given !!int 1000"),
        ("options: {a: !!timestamp 2001-01-01}", "options: given !!timestamp 2001-01-01; allowed: a mapping of names"),
        ("options: {a: !!binary aGk=}", "options: given !!binary aGk=; allowed: "),
        ("options: {a: !!set {b, c}}", "options: given !!set; allowed: "),
        ("options: {a: !own 1}", "options: given !own 1; allowed: "),
        (NINES, "line 7: g: more than 1048576 characters so far, with aliases (*name) filled in"),
        ("seed: 1\noptions: &o {a: *o}", "line 2: options: more than 1048576 characters so far"),
    ],
    ids=range(18),
)
def test_a_file_that_is_no_preset_is_one_line(tmp_path, text, said):
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(ParameterError) as caught:
        load_preset(path)
    assert said in str(caught.value) and "own.yaml" in str(caught.value) and "\n" not in str(caught.value)


def test_an_alias_is_what_it_stands_for(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("env: &both {A: x}\noptions: {first: *both, second: *both}\n")
    assert load_preset(path) == {"env": {"A": "x"}, "options": {"first": {"A": "x"}, "second": {"A": "x"}}}


def test_a_preset_that_does_not_exist_names_those_that_do():
    with pytest.raises(ParameterError) as caught:
        load_preset("h2000")
    assert (
        str(caught.value) == f"preset: given 'h2000', which is no file; allowed: {', '.join(SHIPPED)}, or a YAML file"
    )


def test_every_parameter_is_read_by_something(repo):
    """A parameter that nothing reads would be believed and do nothing."""
    files = [p for p in (repo / "lib").rglob("*.py") if p.parent.name != "params"]
    text = "\n".join(p.read_text() for p in [*files, *(repo / "notebooks").glob("*.ipynb")])
    unread = [
        n for n in Params.model_fields if not re.search(rf"(params|parameters|given)(\.{n}\b|\[.{{1,2}}{n}\W)", text)
    ]
    assert unread == []


def test_the_targets_allowed_are_those_with_a_table_of_limits():
    from capturebook.measure.limits import TABLE

    assert [row["allowed"] for row in describe() if row["name"] == "targets"] == [
        f"a list of 1 to 6 of {', '.join(str(sm) for sm in TABLE)}"
    ]


def test_the_example_of_a_users_own_kernel_is_right_as_interpreted(repo):
    """Triton's interpreter shows the arithmetic, not the compilation; it takes a kernel without its autotuner."""
    code = (
        "import own_kernel as own; step = own.build(batch=3, width=1000); own.rms_norm = own.rms_norm.fn\n"
        "inputs = step.make_inputs(0); want = step.reference(*inputs)\n"
        "print(*(float((s.fn(*inputs).double() - want).abs().max() / want.abs().max()) for s in (step, step.twin)))"
    )
    path = f"{repo / 'lib'}{os.pathsep}{repo / 'examples'}"
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    kernel, twin = (float(word) for word in said.stdout.split())
    assert twin <= 2**-8, said.stderr
    assert kernel <= 2**-7, "the interpreter cuts bf16 off where a GPU rounds"
