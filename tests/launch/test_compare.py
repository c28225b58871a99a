"""A/B of launches: arms that change a launch file, rivals' predictions against what the launches showed."""

import html
import json
from pathlib import Path

import pytest
import yaml
from launch_bench import here_only, ssh_only
from standin import COMPARISON, LAUNCH, written

from capturebook import cli
from capturebook.attribution.scores import CONTRADICTED, HELD, NOT_TESTED
from capturebook.launch import LaunchFileError
from capturebook.launch.servers import compare
from capturebook.launch.servers.comparison import Change, is_comparison, load_comparison
from capturebook.records import read
from capturebook.report import launch_page

REPO = Path(__file__).resolve().parents[2]


@ssh_only
def test_arms_are_launched_asked_stopped_and_scored(bench):
    compared = compare.compare(load_comparison(written(bench)), bench.host, bench.events.append)
    marks = {score.id: {row.arm: row.mark for row in score.rows} for score in compared.scores()}
    assert marks == {
        "stack": {"stock": HELD, "mma": HELD, "compiled": HELD},
        "kernel": {"mma": CONTRADICTED, "compiled": CONTRADICTED},
        "slow": {"mma": CONTRADICTED},
    }
    assert compared.found("compiled") == "fail with 905" and "times as fast" in compared.found("mma")
    assert not bench.running(), "every server was stopped"
    records, torn = read(compared.path / "records.jsonl")
    assert not torn and [r.payload["arm"] for r in records] == ["stock", "stock", "mma", "mma", "compiled"]
    kept = json.loads((compared.path / "comparison.json").read_text())
    assert kept["rivals"][0]["held"] == 3 and kept["arms"]["mma"]["ratios"][0] > 2


@here_only
def test_an_arm_that_did_not_run_tests_nothing(bench):
    arms = [*COMPARISON["arms"][:2], {"id": "compiled", "factors": {"env": {"PATH": "/nowhere"}}, "why": "no program"}]
    path = written(bench, arms=arms, load=None)
    bench.write("server.yaml", yaml.safe_dump({**LAUNCH, "interpreter": ["python3"]}))
    compared = compare.compare(load_comparison(path), None, bench.events.append)
    marks = {score.id: {row.arm: row.mark for row in score.rows} for score in compared.scores()}
    # Nor does a speed that was never measured.
    assert marks["stack"] == {"stock": HELD, "mma": NOT_TESTED, "compiled": NOT_TESTED}
    assert compared.found("compiled") == "not run (C5)"
    page = html.unescape(launch_page.build(compared.path).read_text())
    assert f"Arm compiled: not run (C5): {compared.of('compiled')[0].launched.reason}</li>" in page


@here_only
def test_a_host_that_cannot_be_reached_is_tried_once(bench, monkeypatch):
    (bench.root / "ssh_config").write_text("Host gpu1\n HostName nosuch.invalid\n")
    monkeypatch.setenv("CAPTUREBOOK_SSH", f"ssh -F {bench.root}/ssh_config")
    compared = compare.compare(load_comparison(written(bench, rounds=2)), "gpu1", bench.events.append)
    assert len(bench.ids()) == 1 and len([event for event in bench.events if event.startswith("not run")]) == 1
    why = "1 of 6 launches tried, the rest not: ssh cannot reach <host>: its name is not resolved: ssh: Could not"
    assert compare.lines(compared)[0].startswith(why)
    assert [compared.found(arm) for arm in ("stock", "mma")] == ["not run (C5)", "not tried"]
    head = (
        html.unescape(launch_page.build(compared.path).read_text()).partition('id="outcome"')[2].partition("</div>")[0]
    )
    assert why in head and "What to do: see ~/.ssh/config" in head and "Arm mma: not tried" in head


@here_only
def test_run_takes_nothing_of_the_chains_beside_it(bench, capsys):
    assert cli.main(["run", str(written(bench)), "--only", "00"]) == 2
    assert "--only: given with a comparison of launches" in capsys.readouterr().err and bench.ids() == []


@here_only
def test_the_command_line_runs_it_and_says_what_held(bench):
    rival = {**COMPARISON["rivals"][0], "predicts": {"mma": {"status": "pass"}, "compiled": {"status": "fail"}}}
    short = {"arms": COMPARISON["arms"][1:], "rivals": [rival], "load": {"concurrency": [1], "requests": 1}}
    done = bench.cli("launch", str(written(bench, **short)), "--json")
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    assert json.loads(out)["arms"]["compiled"]["found"] == "fail with 905"
    assert "stack: 2 held, 0 contradicted, 0 not tested" in err and "one launch an arm" in err


@here_only
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arms": COMPARISON["arms"][:1]}, "arms: given"),
        ({"rivals": [{"id": "a", "statement": "s", "predicts": {"x": {"status": "pass"}}}]}, "rivals.a: no arm 'x'"),
        ({"arms": [{"id": "a", "factors": {"flag": 1}, "why": "w"}] * 2}, "arms: an id is given twice"),
        ({"arms": [COMPARISON["arms"][0], {"id": "b", "factors": {"flag": 1}, "why": "w"}]}, "arms.b: flag=1; extra"),
        ({"rivals": [{"id": "a"}]}, "rivals.0.statement: missing"),
        ({"rounds": 0}, "rounds: given 0"),
        ({"load": {"concurrency": [0]}}, "load.concurrency.0: given 0"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(bench, changes, says):
    with pytest.raises(LaunchFileError, match=f"^comparison: {says}"):
        load_comparison(written(bench, **changes))


@here_only
def test_secrets_of_an_arm_are_nowhere(bench):
    arms = [
        COMPARISON["arms"][0],
        {"id": "keyed", "factors": {"env": {"HF_TOKEN": "first-one", "DELAY": "0"}, "add": ["--api-key=second-one"]},
         "why": "w"},
    ]  # fmt: skip
    rivals = [{"id": "a", "statement": "s", "predicts": {"keyed": {"status": "fail"}}}]
    path = written(bench, arms=arms, rivals=rivals, load=None)
    # Neither starts: what is kept and told of them is the same.
    bench.write("server.yaml", yaml.safe_dump({**LAUNCH, "interpreter": ["/nowhere/python3"]}))
    compared = compare.compare(load_comparison(path), None, bench.events.append)
    launch_page.build(compared.path)
    told = "\n".join([*compare.lines(compared), *bench.events])
    told += "".join(p.read_text() for p in (bench.root / "outputs").rglob("*") if p.is_file())
    assert "first-one" not in told and "second-one" not in told
    assert "keyed (DELAY=0, HF_TOKEN=[redacted], with --api-key=[redacted])" in told


@here_only
def test_a_word_to_drop_must_be_there(bench):
    arms = [*COMPARISON["arms"][:2], {"id": "compiled", "factors": {"drop": ["--eager"]}, "why": "typo"}]
    comparison = load_comparison(written(bench, arms=arms))
    with pytest.raises(LaunchFileError, match="arms.compiled: drop: '--eager' is no word of the launch's args"):
        compare.compare(comparison)
    assert bench.ids() == []


def test_the_shipped_story_changes_what_it_says():
    path = REPO / "params/servers/flashmla.yaml"
    assert is_comparison(path) and not is_comparison(REPO / "params/servers/sglang_v4_flash.yaml")
    specs = load_comparison(path).specs()
    flag = "--enable-torch-compile"
    assert {arm: (spec.env, flag in spec.command) for arm, spec in specs.items()} == {
        "stock": ({"SGLANG_SM120_MMA_FLASHMLA": "0"}, False),
        "mma": ({}, False),
        "mma_compiled": ({}, True),
        "stock_compiled": ({"SGLANG_SM120_MMA_FLASHMLA": "0"}, True),
    }
    assert Change().of(specs["mma"], "same").command == specs["mma"].command
