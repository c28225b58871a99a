"""Several launches that need each other, as a prefill server and a decode server do: one after the other."""

from collections.abc import Callable

from ..records import Record
from .control import stop
from .launcher import launch
from .spec import LaunchFile, LaunchFileError
from .store import Entry


def launch_in_order(
    specs: list[LaunchFile], host: str | None = None, on_event: Callable[[str], None] = print
) -> list[Record]:
    """Launch each once the one before it is ready (or, a script, done). In a later file {NAME.port} and {NAME.folder}
    are those of the earlier launch NAME. When one does not pass, the earlier servers are stopped, the last first, and
    their stops' records follow.

    Raises LaunchFileError for two of one name, before anything is started.
    """
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise LaunchFileError(f"name: {name!r} is given to {names.count(name)} launches; allowed: one each")
    for spec in specs:
        spec.deliveries()
        spec.secrets()
    records, known = [], {}
    for spec in specs:
        records.append(launch(spec, host, on_event, known=dict(known)))
        if records[-1].status != "pass":
            servers = [record.run for record in records[:-1] if Entry.open(record.run).info["state"] == "ready"]
            records += [stop(name, on_event) for name in reversed(servers)]
            break
        info = Entry.open(records[-1].run).info
        known[f"{spec.name}.folder"] = f"{info['folder']}/work"
        if info["resolved"]["port"] is not None:
            known[f"{spec.name}.port"] = str(info["resolved"]["port"])
    return records
