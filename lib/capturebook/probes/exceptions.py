"""From a raised exception to the chain of links a record holds: outermost first, the root last."""

import os
import traceback

from .. import paths
from ..records import Frame, Link, printable
from ..records.cuda_errors import code_of, name_of
from .scrub import PACKAGE, relative, scrub

_MAX_FRAMES = 12
_MAX_TEXT = 4000


def chain_of(error: BaseException, run: str | None, subject_folders: tuple[str, ...], thread: str = "main"):
    """The links of an exception: `raise ... from` first, else what was being handled.

    torch.cuda.graph raises 901 on top of the real error, so the last link is the one to classify.
    """
    return [_link(one, run, subject_folders, thread) for one in walk(error)]


def code_in(error: BaseException) -> int | None:
    """The CUDA code of an exception's root, None if that carries none (a library's status, an error of Python)."""
    return _code(walk(error)[-1])


def walk(error: BaseException | None) -> list[BaseException]:
    """An exception and what it came of, outermost first. Each once: a chain may be a cycle."""
    found: list[BaseException] = []
    while error is not None and not any(error is one for one in found):
        found.append(error)
        error = error.__cause__ if error.__cause__ is not None else error.__context__
    return found


def text_of(error: BaseException) -> str:
    """What an exception says; its `__str__` is the subject's code, and may fail itself."""
    try:
        return str(error)
    except Exception as own:
        why = "".join(f": {word}" for word in own.args[:1] if isinstance(word, str))
        return f"<its text cannot be made: {type(own).__name__}{why}>"


def _code(error: BaseException) -> int | None:
    code = getattr(error, "error_code", None)
    if isinstance(code, int) and not isinstance(code, bool) and code != 0:
        return code
    known = code_of(text_of(error))
    return known[0] if known else None


def _link(error: BaseException, run, subject_folders, thread) -> Link:
    text = text_of(error)
    code = _code(error)
    frames = [
        Frame(
            file=relative(f.filename, run),
            line=f.lineno or 0,
            function=f.name,
            tag=tag_of(f.filename, subject_folders),
        )
        for f in traceback.extract_tb(error.__traceback__)
    ]
    if len(frames) > _MAX_FRAMES:
        frames = [f for f in frames if f.tag == "subject"][-4:] + frames[-(_MAX_FRAMES - 4) :]
    return Link(
        type=type(error).__name__,
        module=type(error).__module__,
        code=code,
        name=name_of(code) if code is not None else None,
        text=printable(scrub(text, run))[:_MAX_TEXT],
        thread=thread,
        frames=frames,
    )


def tag_of(filename: str, subject_folders: tuple[str, ...]) -> str:
    """Whose code a file is: subject, capturebook, inductor (its generated code too), torch, triton or library."""
    if filename in subject_folders:
        return "subject"
    place = relative(filename)
    if place.startswith("torch/_inductor/") or f"{os.sep}inductor{os.sep}" in filename:
        return "inductor"
    if place.startswith(("torch/", "triton/")):
        return place.partition("/")[0]
    if any(filename.startswith(f.rstrip("/") + "/") for f in subject_folders):
        return "subject"
    if filename.startswith(str(PACKAGE)):
        return "capturebook"
    return "library"


def subject_folders(target: str) -> tuple[str, ...]:
    """Files and folders that count as the subject's own code for a target."""
    import importlib.util

    where = target.rpartition(":")[0]
    if where.endswith(".py"):
        path = paths.resolve(where)
        return (str(path), str(path.parent))
    if where.startswith("capturebook."):
        return (str(PACKAGE / "subjects"), str(PACKAGE / "kernels"))
    spec = importlib.util.find_spec(where.partition(".")[0])
    return tuple(spec.submodule_search_locations or [spec.origin]) if spec else ()
