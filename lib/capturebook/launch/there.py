"""Runs on the host that `capturebook run --host` names: unpack the checkout, run the chain, pack the run folder.

`python there.py NONCE`, in the folder with checkout.tar.gz and request.json: {"run": folder name, "arguments": [...]}.
Standard library only: the chain's own packages may be missing here, and that must be said by the chain.
"""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Plain files and folders below `folder`. Raises tarfile.TarError or ValueError for what leads out of it."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
        return
    # Python before 3.11.4, Debian 12's for one.
    for member in archive:
        if not (member.isfile() or member.isdir()) or member.name.startswith("/") or ".." in Path(member.name).parts:
            raise ValueError(f"{member.name!r} is no plain file below the folder")
    archive.extractall(folder)


def main(nonce: str) -> int:
    request = json.loads(Path("request.json").read_text(encoding="utf-8"))
    root = Path("checkout").absolute()
    with tarfile.open("checkout.tar.gz") as archive:
        unpack(archive, root)
    name = f"outputs/{request['run']}"
    command = [sys.executable, "-m", "capturebook", "run", *request["arguments"], "--run-dir", name]
    env = {**os.environ, "PYTHONPATH": str(root / "lib"), "CAPTUREBOOK_ROOT": str(root)}
    status = subprocess.run(command, cwd=root, env=env).returncode
    run = root / name
    if not (run / "run.json").exists():
        print(f"the chain made no run folder; exit status {status}", flush=True)
        return status or 1
    info = json.loads((run / "run.json").read_text(encoding="utf-8"))
    with tarfile.open("run.tar.gz", "w:gz") as archive:
        archive.add(run, arcname=request["run"])
    packed = Path("run.tar.gz").read_bytes()
    end = {
        "status": status,
        "nonce": info["nonce"],
        "code": info["code"],
        "sha256": hashlib.sha256(packed).hexdigest(),
        "bytes": len(packed),
    }
    print(f"run ended {nonce} {json.dumps(end)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
