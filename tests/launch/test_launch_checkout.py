"""`capturebook run --host`: the checkout goes there over a real sshd, the run folder comes back."""

import json
import shutil
import subprocess
import sys

import pytest
from launch_bench import killed, ssh_only

import fake_run
from capturebook import cli, provenance
from capturebook import launch as launching
from capturebook.report.run_data import RunData


@pytest.fixture
def checkout(bench, repo):
    """The scratch checkout as a git checkout of this package, with one uncommitted change and one untracked file."""
    for name in ("notebooks", "params"):
        (bench.root / name).rmdir()
    skipped = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("lib", "notebooks", "params"):
        shutil.copytree(repo / name, bench.root / name, ignore=skipped)
    committed(bench, "lib", "notebooks", "params")
    with open(bench.root / "params/cpu.yaml", "a") as file:
        file.write("# changed and not committed\n")
    return bench


def committed(bench, *names: str) -> None:
    git = ["git", "-C", bench.root, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", *names], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "all"], check=True)


def command(bench, *more: str) -> list[str]:
    return ["run", "cpu", "--only", "00", "--host", bench.host, "--python", sys.executable, *more]


@ssh_only
def test_a_run_there_comes_back_whole(checkout):
    done = checkout.cli(*command(checkout), cwd=checkout.root)
    err = done.communicate(timeout=200)[1]
    assert done.returncode == 0, err
    (entry,) = launching.entries()
    record = entry.records()[-1]
    run = checkout.root / record.payload["run"]
    info = json.loads((run / "run.json").read_text())
    # The same code, uncommitted change included, was run there; its report and records are here.
    assert info["code"] == provenance.code_tree() and not record.caveats
    assert (run / "report.html").stat().st_size > 10000 and (run / "verdict.json").exists()
    assert "fetch       held" in err and "| " in err
    # Its report shows how it got there, too.
    assert [r.payload["launch"] for r in RunData.open(run).launches] == [entry.id]
    assert 'id="launches"' in (run / "report.html").read_text()
    # It ran in the launch's folder there, not in our checkout.
    assert not entry.info["folder"].startswith(str(checkout.root))
    assert launching.attach(entry.id, checkout.events.append).reason == "fetched before"
    # Another run's archive in its place is not taken for this one.
    shutil.rmtree(run)
    with open(f"{entry.info['folder']}/work/run.tar.gz", "ab") as file:
        file.write(b"more")
    changed = launching.attach(entry.id, checkout.events.append)
    assert (changed.status, changed.payload["class"]) == ("not_run", "C2") and not run.exists()


# In place of the package: a chain that takes a second, and whose run lay in the checkout.
CHAIN = """\
import shutil, sys, time
time.sleep(1)
shutil.copytree("canned", sys.argv[sys.argv.index("--run-dir") + 1])
"""


@ssh_only
def test_a_caller_that_was_killed_fetches_by_attach(bench):
    fake_run.cpu_run(bench.root / "canned")
    package = bench.root / "lib/capturebook"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(CHAIN)
    committed(bench, "lib", "canned")
    killed("log", lambda seen: launching.run_there(bench.host, "cpu", [], sys.executable, None, seen))
    (name,) = bench.ids()
    record = launching.attach(name, bench.events.append)
    assert record.status == "pass", record.reason
    run = bench.root / record.payload["run"]
    assert json.loads((run / "run.json").read_text())["nonce"] in (run / "records.jsonl").read_text()
    # That run's code is not ours.
    assert any("git does not track" in caveat for caveat in record.caveats)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["../other.yaml"], "preset: "),
        (["cpu.yaml"], ""),
        (["cpu", "--set", "subject=mine.py:build"], "subject: 'params/mine.py'"),
    ],
)
@ssh_only
def test_files_are_named_there_as_the_checkout_has_them(checkout, monkeypatch, capsys, words, says):
    monkeypatch.chdir(checkout.root / "params")
    shutil.copy("cpu.yaml", "../other.yaml")
    (checkout.root / "params/mine.py").write_text("def build():\n    pass\n")
    asked = []
    monkeypatch.setattr(launching, "run_there", lambda host, name, arguments, *rest, **more: asked.append(arguments))
    if says:
        assert cli.main(["run", *words, "--host", checkout.host]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and says in err and "not delivered to a host" in err
    else:
        with pytest.raises(AttributeError):
            cli.main(["run", *words, "--host", checkout.host])
    assert asked == ([] if says else [["params/cpu.yaml"]])


@ssh_only
def test_what_the_chain_refuses_there_is_said_here(checkout):
    # A parameter that is fine here; there the python lacks everything.
    done = checkout.cli(*command(checkout)[:-1], "/usr/bin/python3", cwd=checkout.root)
    err = done.communicate(timeout=100)[1]
    assert done.returncode == 3 and "No module named" in err
    refused = checkout.cli(*command(checkout, "--set", "heads=7"), cwd=checkout.root)
    err = refused.communicate(timeout=60)[1]
    assert refused.returncode == 2 and err.count("\n") == 1 and "heads" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [(["--host", ""], "host: given ''"), (["--python", "python3"], "--python: given 'python3' without")],
)
def test_a_host_that_is_empty_is_not_this_machine(capsys, words, says):
    assert cli.main(["run", "cpu", *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and says in err
