"""Execute one notebook by papermill's Python API, and write down how that ended.

`python -m capturebook.chain.execute REQUEST`, REQUEST being a JSON file: source, output, parameters, cell_timeout
(seconds), state (a file that always holds the cell being run) and end (a file written once, last, whatever happened).
papermill's own metadata is not used: it says "completed" of cells whose kernel died (symptom: a green notebook
without results).
"""

import json
import os
import sys
from pathlib import Path

from ..probes import processes
from .runfiles import write_json

LONGEST_SOCKET = 107
"""A Unix socket's path may have no more bytes. (A long TMPDIR: then the kernel is reached over TCP on localhost.)"""


class Watch:
    """Which cell runs, how many ran, and the kernel process, as nbclient's hooks and the kernel manager tell it."""

    def __init__(self, state: Path):
        self.state = state
        self.cell: int | None = None
        self.executed = 0
        self.process = None

    def on_cell_start(self, cell, cell_index: int) -> None:
        self.cell = cell_index
        write_json(self.state, {"cell": cell_index, "line": first_line(cell.source)})

    def on_cell_executed(self, cell, cell_index: int, execute_reply) -> None:
        self.executed += 1


def first_line(source: str) -> str:
    """A cell's first line of code, to name it by."""
    lines = [line.strip() for line in source.splitlines() if line.strip() and not line.strip().startswith(("#", "%"))]
    return lines[0][:80] if lines else ""


def literal(path: str) -> str:
    """A path as it is: papermill formats paths with the parameters (symptom: "Missing parameter" for a brace)."""
    return path.replace("{", "{{").replace("}", "}}")


def execute(request: dict, watch: Watch) -> dict:
    """Run the notebook. Returns {outcome: done | dead_kernel | cell_timeout | cell_error | exited | no_kernel, ...}."""
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    try:
        notebook = papermill.execute_notebook(
            literal(request["source"]),
            literal(request["output"]),
            parameters=request["parameters"],
            kernel_name="python3",
            progress_bar=False,
            execution_timeout=request["cell_timeout"],
            start_timeout=180,
            coalesce_streams=True,
            skip_cells_with_tag="interactive",
            config=_config(watch),
            on_cell_start=watch.on_cell_start,
            on_cell_executed=watch.on_cell_executed,
        )
    except DeadKernelError:
        return {"outcome": "dead_kernel", "kernel_exit": watch.process.poll() if watch.process else None}
    except CellTimeoutError:
        return {"outcome": "cell_timeout", "seconds": request["cell_timeout"]}
    except PapermillExecutionError as error:
        return {"outcome": "cell_error", "error": f"{error.ename}: {error.evalue}"}
    exited = [o.evalue for c in notebook.cells for o in c.get("outputs", ()) if o.get("ename") == "SystemExit"]
    return {"outcome": "exited", "error": f"SystemExit: {exited[0]}"} if exited else {"outcome": "done"}


def _config(watch: Watch):
    """Unix sockets beside the connection file instead of TCP ports: no port race, nothing listens on the network."""
    from jupyter_client.manager import AsyncKernelManager
    from traitlets.config import Config

    class Manager(AsyncKernelManager):
        async def start_kernel(self, **options):
            await super().start_kernel(**options)
            watch.process = self.provisioner.process

    config = Config()
    config.PapermillNotebookClient.kernel_manager_class = Manager
    connection = os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], "k.json")
    os.makedirs(os.path.dirname(connection), exist_ok=True)
    config.KernelManager.connection_file = connection
    if len(os.fsencode(connection)) + len("-ipc-1") <= LONGEST_SOCKET:
        config.KernelManager.transport = "ipc"
    return config


def main(path: str) -> None:
    request = json.loads(Path(path).read_text())
    watch = Watch(Path(request["state"]))
    end = {"outcome": "crashed"}
    try:
        end = execute(request, watch)
    except BaseException as error:
        end["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        write_json(Path(request["end"]), {**end, "cell": watch.cell, "executed": watch.executed})


if __name__ == "__main__":
    # jsonschema's optional IRI grammar, where installed, takes 1.5 s of each notebook's start and serves nothing here.
    sys.modules["rfc3987_syntax"] = None
    processes.die_with_parent(os.getppid())
    main(sys.argv[1])
