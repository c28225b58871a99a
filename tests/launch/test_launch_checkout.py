"""`capturebook run --host`: the checkout goes there over a real sshd, the run folder comes back."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from capturebook import cli, provenance
from capturebook import launch as launching
from capturebook.report.run_data import RunData

ssh_only = pytest.mark.parametrize("bench", ["ssh"], indirect=True)


@pytest.fixture
def checkout(bench, repo):
    """The scratch checkout as a git checkout of this package, with one uncommitted change and one untracked file."""
    for name in ("notebooks", "params"):
        (bench.root / name).rmdir()
    skipped = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("lib", "notebooks", "params"):
        shutil.copytree(repo / name, bench.root / name, ignore=skipped)
    git = ["git", "-C", bench.root, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "lib", "notebooks", "params"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "all"], check=True)
    with open(bench.root / "params/cpu.yaml", "a") as file:
        file.write("# changed and not committed\n")
    return bench


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


@ssh_only
def test_a_caller_that_was_killed_fetches_by_attach(checkout):
    (checkout.root / "lib/capturebook/untracked.py").write_text("# not delivered\n")
    caller = checkout.cli(*command(checkout), cwd=checkout.root)
    for line in caller.stderr:
        if line.startswith("log "):
            break
    os.kill(caller.pid, signal.SIGKILL)
    caller.communicate()
    (name,) = checkout.ids()
    attached = checkout.cli("attach", name, "--json", cwd=checkout.root)
    out, err = attached.communicate(timeout=200)
    record = json.loads(out)
    assert attached.returncode == 0 and record["status"] == "pass", err
    assert (checkout.root / record["payload"]["run"] / "run.json").exists()
    assert any("git does not track" in caveat for caveat in record["caveats"])


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
