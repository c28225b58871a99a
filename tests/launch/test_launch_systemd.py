"""`systemd: true`: with stand-ins for systemd-run and systemctl, since no test machine runs the real one."""

import shutil
import subprocess
from pathlib import Path

import pytest
from launch_bench import here_only, stage, toolbox

from capturebook import launch as launching
from capturebook.launch.channel import text_of

# As the real one with --scope: it notes the unit and becomes the command, which keeps its standard streams.
RUN = """\
#!/bin/sh
printf '%s\\n' "$*" >>"$UNITS/asked"
[ ! -e "$UNITS/refuses" ] || { echo 'Failed to start transient scope unit: Access denied' >&2; exit 1; }
while [ "$1" != -- ]; do
    case $1 in --unit=*) echo $$ >"$UNITS/${1#--unit=}" ;; esac
    shift
done
shift
exec "$@"
"""
# A scope is active as long as a process is in it; the manager's Version says that it answers.
CTL = """\
#!/bin/sh
[ ! -e "$UNITS/mute" ] || { echo 'System has not been booted with systemd as init system (PID 1).' >&2; exit 1; }
for unit; do :; done
case $unit in
    Version) echo Version=255.4 ;;
    *) if [ ! -e "$UNITS/lies" ] && kill -0 "$(cat "$UNITS/$unit")" 2>/dev/null
       then printf 'ActiveState=active\\nSubState=running\\n'
       else printf 'ActiveState=inactive\\nSubState=dead\\n'; fi ;;
esac
"""


@pytest.fixture
def units(bench, monkeypatch):
    """A folder with what the stand-ins know."""
    folder = bench.root / "units"
    folder.mkdir()
    monkeypatch.setenv("UNITS", str(folder))
    toolbox(bench, monkeypatch, **{"systemd-run": RUN, "systemctl": CTL})
    (bench.root / "tools" / "id").symlink_to(shutil.which("id", path="/usr/bin:/bin"))
    return folder


@here_only
def test_it_runs_in_a_scope_whose_state_is_evidence(bench, units):
    bench.write("up.sh", "echo up; while :; do sleep 0.1; done\n")
    record = bench.launch(script="up.sh", ready={"log": "^up"}, systemd=True, env={"MY_TOKEN": "hidden-value"})
    assert record.status == "pass", record.reason
    unit = f"capturebook-{record.run}.scope"
    assert stage(record, "connect")["evidence"]["systemd"] == "255.4"
    proven = stage(record, "identity")["evidence"]
    assert (proven["unit"], proven["unit_state"]) == (unit, "active (running)")
    asked = (units / "asked").read_text()
    assert "--scope --collect --quiet" in asked and f"--unit={unit} -- " in asked and "hidden-value" not in asked
    # The keeper that systemd-run became is the one that the launch recorded.
    assert int((units / unit).read_text()) == launching.Entry.open(record.run).info["keeper"][0]
    assert launching.stop(record.run, bench.events.append).status == "pass" and not bench.running()


@here_only
def test_a_script_that_ended_leaves_its_scope_dead(bench, units):
    record = bench.script("echo RESULT\n", result={"log": "RESULT"}, systemd=True)
    assert record.status == "pass", record.reason
    assert stage(record, "end")["evidence"]["unit"].endswith(".scope")


@here_only
@pytest.mark.parametrize(
    ("plant", "where", "klass", "says"),
    [
        ("mute", "connect", "C5", "systemd: asked for, and none answers on this host: System has not been booted"),
        ("refuses", "start", "C5", "Failed to start transient scope unit: Access denied"),
        ("lies", "identity", "C5", "the program runs, but capturebook-t-"),
    ],
)
def test_what_systemd_does_not_do_is_one_line_and_leaves_nothing(bench, units, plant, where, klass, says):
    (units / plant).touch()
    record = bench.script("echo up; sleep 60\n", result={"log": "never"}, systemd=True)
    assert (record.status, record.payload["failed_stage"], record.payload["class"]) == ("not_run", where, klass)
    assert says in record.reason and record.payload["todo"] and not bench.running()


def test_where_systemd_does_not_run_it_is_refused_in_one_line(bench):
    # Its programs may be installed all the same.
    if Path("/run/systemd/system").is_dir():
        pytest.skip("systemd runs on this machine")
    record = bench.script("echo RESULT\n", result={"log": "RESULT"}, systemd=True)
    assert (record.status, record.payload["failed_stage"], record.payload["class"]) == ("not_run", "connect", "C5")
    assert record.reason.startswith("systemd: asked for, and none answers on this host: ")
    assert "leave `systemd` out" in record.payload["todo"] and "\n" not in record.reason


def test_what_is_in_the_scope_is_of_the_launch_whatever_it_gave_up(tmp_path):
    # Its cgroup is the one thing that it cannot leave. A file in place of /proc/PID/cgroup, as systemd 252 fills it.
    text = text_of("functions").decode().replace('"/proc/$1/cgroup"', '"$1"')
    for lines, there in (
        ("9:name=systemd:/system.slice/capturebook-t-1.scope\n0::/\n", True),
        ("0::/user.slice/user-1000.slice/capturebook-t-1.scope/inner\n", True),
        ("0::/system.slice/capturebook-t-1.scope2\n", False),
        ("", False),
    ):
        (tmp_path / "cgroup").write_text(lines)
        for unit in ("capturebook-t-1.scope", ""):
            code = f"{text}\ncb_unit='{unit}'; cb_in_unit '{tmp_path}/cgroup'"
            assert (subprocess.run(["sh", "-c", code]).returncode == 0) is (there and unit != ""), lines
