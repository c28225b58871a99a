"""Write a failing record as a standalone script: environment, subject, then the arm step by step, straight down."""

import pprint
from pathlib import Path

from ..attribution import evidence as ev
from ..records import SUBJECT_FACTORS, Arm, Record
from . import parts
from .sources import Sources, sources


class ReproError(ValueError):
    """A record that cannot be written as a script. One line says which and why."""


def write(record: Record, info: dict, path: Path) -> list[Path]:
    """Write the script to `path`, and beside it, where the subject is more than one plain file, its sources.

    `info` is run.json (the parameters env and preload, and the GPU it had, are read). Returns the files written. Raises
    ReproError for a record that shows no failure or rests on what a script cannot bring, FileNotFoundError when the
    subject is gone.
    """
    _refuse(record)
    parameters = info["parameters"]
    preload = () if record.role == "control" else tuple(parameters["preload"])
    found = sources(record.subject.target, preload)
    text = found.inline()
    written = [path] if text is not None else [path, *_copy(found, _beside(path))]
    env = {**parameters["env"], **record.arm.env}
    path.write_text(script(record, env, preload, found, text, path.name, needs_gpu(record, info)))
    return written


def needs_gpu(record: Record, info: dict) -> bool:
    """Whether the probe ran on a GPU; one that failed before it could say so ran on what its run had."""
    return record.effective.get("device", "cuda" if info["provenance"]["gpu"] else "cpu") != "cpu"


def _refuse(record: Record) -> None:
    what = f"record {record.probe}"
    if record.kind != "step" or record.subject is None or record.arm is None:
        raise ReproError(f"{what}: is a {record.kind} record; allowed: a step that failed or came out wrong")
    if record.status not in ("fail", "wrong"):
        raise ReproError(f"{what}: its status is {record.status}; allowed: fail or wrong")
    if record.arm.tuning == "cached":
        raise ReproError(f"{what}: tuning=cached starts from another process's cache folder, which a script has not")
    if any("generic one stood in" in caveat for caveat in record.caveats):
        raise ReproError(f"{what}: is of the generic twin, which is not the subject's code")


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}_subject")


def _copy(found: Sources, folder: Path) -> list[Path]:
    """The subject's files below `folder`, by their paths below the import root. Raises ReproError if it exists."""
    if folder.exists():
        raise ReproError(f"{folder.name}: exists already, and the subject's sources go there; allowed: a new folder")
    copies = []
    for relative, file in sorted(found.files.items()):
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
        copies.append(target)
    return copies


def script(record: Record, env: dict, preload: tuple, found: Sources, text: str | None, name: str, cuda: bool) -> str:
    """The script's text. `text` is the subject's source to stand in it, or None where it lies beside."""
    pieces = [_head(record, found, text is None, name, cuda), f"{_environment(env)}\n\n{_imports(record, preload)}"]
    if text is None:
        folder = f'os.path.join(os.path.dirname(os.path.abspath(__file__)), "{_beside(Path(name)).name}")'
        pieces.append(f"sys.path.insert(0, {folder})\nfrom {found.module} import {found.build}")
    else:
        rule = "# " + "-" * 20
        subject = f"{rule} the subject: {found.own.name} {rule}\n\n{text.strip()}\n\n\n{rule} end of the subject {rule}"
        pieces += [parts.STEP.strip(), subject]
    pieces.append(_constants(record, found))
    pieces.append(parts.HELPERS.strip())
    if record.arm.tuning == "pinned":
        pieces.append(parts.PIN.strip())
    driven = _drives_itself(record)
    pieces.append((parts.COMPARE if record.status == "wrong" or driven else parts.NOT_COMPARED).strip())
    if cuda and (_on_replay(record) or driven):
        pieces.append(parts.POISON.strip())
    if driven:
        pieces.append(parts.DRIVE.strip())
    pieces += [_reproduce(record, cuda), parts.TEXT_OF.strip(), parts.MAIN.strip()]
    return "\n\n\n".join(pieces) + "\n"


def expected(record: Record) -> dict:
    """What the script must show: status, and the root's type, code and first line, or how the process ended."""
    if record.status == "wrong":
        return {"status": "wrong", "call": ev.first_wrong_call(record).rstrip(" 0123456789")}
    root = ev.root_of(record)
    if root is None:
        return {"status": "died", **record.exit}
    return {"status": "fail", "type": root.type, "code": root.code, "text": root.text.partition("\n")[0]}


def _head(record: Record, found: Sources, beside: bool, name: str, cuda: bool) -> str:
    seen = record.effective
    stack = ", ".join(f"{k} {seen[k]}" for k in ("torch", "triton", "cuda") if seen.get(k))
    wanted = expected(record)
    shows = {
        "wrong": f"A wrong result ({wanted.get('call')})",
        "died": "The process dies",
        "fail": " ".join(str(v) for v in (wanted.get("code"), wanted.get("type")) if v),
    }[wanted["status"]]
    also = f"\nThe subject also imports {', '.join(sorted(found.foreign))}." if found.foreign else ""
    needs = "Needs a CUDA GPU, torch and triton." if cuda else "Needs torch; no GPU."
    where = f"This file and {_beside(Path(name)).name}/ beside it were" if beside else "This file was"
    return (
        f'"""{shows} from {found.own.name}:{found.build}.\n\n'
        f"Arm: {record.arm.label()}. Seen with {stack or 'an unknown torch'}.\n{needs}{also}\n\n"
        f"    python {name}\n\n"
        f"Ends with status 0 when the failure shows as recorded, else 1. {where} written by capturebook\n"
        f'from record {record.probe} of run {record.run}.\n"""'
    )


def _environment(env: dict) -> str:
    lines = ["import os"]
    for name, value in sorted(env.items()):
        lines.append(f"os.environ[{name!r}] = {value!r}" if value else f"os.environ.pop({name!r}, None)")
    return "\n".join(lines)


def _imports(record: Record, preload: tuple) -> str:
    names = ["contextlib", "gc", "inspect", "json", "sys", "time", "traceback", "types"]
    lines = [f"import {name}" for name in names]
    if record.arm.thread == "other":
        lines.append("from concurrent.futures import ThreadPoolExecutor")
    return "\n".join([*lines, "", "import torch", *(f"import {m}" for m in preload)])


def _constants(record: Record, found: Sources) -> str:
    arm = record.arm
    factors = {name: getattr(arm, name) for name in SUBJECT_FACTORS if getattr(arm, name) is not None} | arm.options
    rows = [
        f"BUILD = {found.build}",
        f"OPTIONS = {pprint.pformat({**record.subject.options, **factors})}",
        f"SEED = {record.seed}",
        f"TUNING = {arm.tuning!r}",
        f"EXPECTED = {pprint.pformat(expected(record), width=110, sort_dicts=False)}",
    ]
    if arm.tuning == "pinned":
        chosen = {name: found[0]["config"] for name, found in record.tuning.items() if found}
        rows.append(f"PINNED = {pprint.pformat(chosen, width=110)}")
    if _drives_itself(record):
        shown = {**arm.model_dump(), "options": arm.options}
        rows.append(f"ARM = {pprint.pformat(shown, width=110, sort_dicts=False)}")
        rows.append(f"HOLD = {0.5 if record.effective.get('threads') else 0.0}  # seconds that a capture stays open")
    return "\n".join(rows)


def _drives_itself(record: Record) -> bool:
    """The step went through its own `drive(h)`: then the record holds its phases."""
    return "phases" in record.effective


def _on_replay(record: Record) -> bool:
    return record.status == "wrong" and ev.first_wrong_call(record).startswith("replay") or record.stage == "replay"


def _reproduce(record: Record, cuda: bool) -> str:
    """The arm as straight code: build, compile, warm up, then capture and replay, or call."""
    arm = record.arm
    lines = ["def reproduce():", "    step = as_step(BUILD(**options()))"]
    if arm.variant == "twin":
        lines.append("    step = step.twin")
    if arm.tuning == "pinned":
        lines.append("    pin()")
    lines.append(f"    calls = Calls(step, {'True' if cuda else 'False'})")
    lines.append(f"    fn = {_compiled(arm, 'step.fn', True)}")
    if _drives_itself(record):
        return "\n".join(
            [*lines, "    handle = Handle(calls, fn)", "    step.drive(handle)", "    return handle.wrong"]
        )
    if arm.warmup == "kernel_cold":
        lines += _warm_stack(arm)
    count = int(arm.warmup[4:]) if arm.warmup.startswith("warm") else 0
    call = "lambda: calls.call(fn)"
    if cuda and arm.stream == "other":
        lines.append("    other = torch.cuda.Stream()")
        call = "lambda: calls.call(fn, other)"
    if arm.thread == "other":
        lines.append("    thread = ThreadPoolExecutor(1)")
        call = f"lambda: thread.submit({call}).result()"
    for number in range(count):
        lines.append(f'    calls.one("warm-up {number + 1}", {call})')
    if arm.capture == "none":
        lines += ["    for number in range(3):", '        calls.one(f"call {number + 1}", lambda: calls.call(fn))']
        return "\n".join([*lines, "    return calls.wrong"])
    fill = ", before=lambda: poison(calls, out)" if _on_replay(record) else ""
    lines += [
        "    graph = torch.cuda.CUDAGraph()",
        "    calls.begin()",
        "    torch.cuda.synchronize()",
        f'    with torch.cuda.graph(graph, stream=calls.stream, capture_error_mode="{arm.capture}"):',
        "        with calls.around():",
        "            out = fn(*calls.inputs)",
    ]
    if record.effective.get("threads"):
        lines.append("        time.sleep(0.5)  # gives the other threads the time to break it")
    lines += [
        "    calls.counter += 1",
        "    for number in range(3):",
        f'        calls.one(f"replay {{number + 1}}", lambda: calls.replay(graph, out){fill})',
        "    return calls.wrong",
    ]
    return "\n".join(lines)


def _compiled(arm: Arm, fn: str, where_it_says: bool) -> str:
    if arm.compile == "none":
        return fn
    how = f"backend={arm.compile!r}" if arm.compile in ("eager", "aot_eager") else f"mode={arm.compile!r}"
    compiler = f"lambda fn: torch.compile(fn, fullgraph={arm.fullgraph}, dynamic={arm.dynamic}, {how})"
    return (
        f"(step.compiled or (lambda compile_: compile_({fn})))({compiler})" if where_it_says else f"({compiler})({fn})"
    )


def _warm_stack(arm: Arm) -> list[str]:
    """Everything but the step is warm: cuBLAS, and another compiled function."""
    other = _compiled(arm, "lambda t: torch.nn.functional.silu(t @ t) + t", False)
    return [
        "    x = torch.randn(64, 64, device=calls.device)",
        f"    other = {other}",
        "    with calls.on_stream(), torch.no_grad():",
        "        torch.mm(x, x)",
        "        torch.mm(x.bfloat16(), x.bfloat16())",
        "        other(x), other(x)",
        "    calls.synchronize()",
    ]
