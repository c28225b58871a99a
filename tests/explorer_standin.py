"""Stands in for `capturebook` in the explorer's tests: same arguments, stage files and records, no torch.

`python explorer_standin.py MODE probe TARGET ... --run-dir RUN`. MODE pass: three stages, then a passing record.
MODE hang: two stages, a grandchild that leaves session, parent and environment behind, and a sleep that
ignores SIGTERM. MODE refuse: one line on stderr, exit 2.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from capturebook.records import Record, append, arm_from, parse_factors
from evidence.records import READ_BACK


def main(mode: str, arguments: list[str]) -> int:
    run = Path(arguments[arguments.index("--run-dir") + 1])
    if mode == "refuse":
        print("target: 'nowhere:build' cannot be imported", file=sys.stderr)
        return 2
    scratch = run / "probes-1" / "abc-1"
    scratch.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"question": {"arm": {}}}))
    began = time.time()

    def stage(name: str) -> None:
        with open(scratch / "stages", "a") as file:
            file.write(json.dumps({"stage": name, "t": time.time(), "nonce": "n"}) + "\n")

    for name in ("launch", "build", "capture"):
        stage(name)
        print(f"at {name} \x1b[31mred\x1b[0m", file=sys.stderr, flush=True)
        # The panel polls; on a busy machine it must still find the build under way.
        time.sleep(2.0 if name == "build" else 0.2)
    if mode == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        orphan = "import os,time; os.setsid(); os.fork() and os._exit(0); time.sleep(600)"
        subprocess.run([sys.executable, "-c", orphan], env={})
        (run / "hanging").write_text(str(os.getpid()))
        time.sleep(600)
    question = arguments[arguments.index("--question") + 1] if "--question" in arguments else ""
    timeline = [{"stage": name, "s": 0.2 * i} for i, name in enumerate(("launch", "build", "capture", "done"))]
    record = Record(
        run=run.name, probe="abc", nonce="n", kind="step", arm=arm_from(parse_factors(question)), status="pass",
        stage="done", effective={**READ_BACK, "timeline": timeline}, started="", ended="", seconds=time.time() - began,
    )  # fmt: skip
    append(run / "records.jsonl", record)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
