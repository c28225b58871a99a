"""What a failing record looks like by itself: codes, witnesses, frames, and texts where nothing else tells.

Codes and witnesses come first. Texts are for failures that carry no code: a library's status, torch's refusal to copy
or to draw random numbers in a capture, the compiler's own errors.
"""

import re

from ..records import Record
from . import evidence as ev

WIRING_CODES = (902, 904, 905, 906, 907, 908)
"""Errors of stream wiring. A live autotune never gives one of these (measured): it gives 900."""

_LIBRARY = re.compile(
    r"\b(CUBLAS|CUBLASLT|CUDNN|CUFFT|CUSOLVER|CUSPARSE|CURAND)_(STATUS_)?[A-Z_]+|cuDNN error|cuFFT error", re.I
)
_COPY = re.compile(r"Cannot copy between CPU and CUDA tensors during CUDA graph capture")
_GENERATOR = re.compile(
    r"CUDAGeneratorImpl::\w+ (can be called )?during (CUDA graph|stream) capture"
    r"|Attempt to increase offset for a CUDA generator"
)
_TREES = re.compile(r"Cannot prepare for replay during capturing stage")
_OVERWRITTEN = re.compile(r"output of CUDAGraphs that has been overwritten by a subsequent run")
_NOT_REGISTERED = re.compile(
    r"no fake impl|fake impl(ementation)? registered|must not also be an input|may not alias|is not supported in "
    r"torch\.compile|pre_hook and post_hook are not supported",
    re.I,
)
_UNSUPPORTED_TYPES = ("Unsupported", "UserError", "UnsupportedOperatorException", "UnsupportedFakeTensorException")


def root_text(record: Record) -> str:
    root = ev.root_of(record)
    return root.text if root else ""


def root_code(record: Record) -> int | None:
    root = ev.root_of(record)
    return root.code if root else None


def trees_in_capture(record: Record) -> bool:
    """Inductor's cudagraph trees recorded or replayed a graph of their own while the capture was open."""
    if not ev.failed_in_capture(record):
        return False
    root = ev.root_of(record)
    frames = root.frames if root else []
    return (
        ev.witnessed(record, "cudagraph_recording") > 0
        or any("cudagraph_trees" in frame.file for frame in frames)
        or bool(_TREES.search(root_text(record)))
    )


def tree_output_overwritten(record: Record) -> bool:
    """torch's own error for reading a cudagraph tree's output after a later run. Known by its text alone."""
    return record.status == "fail" and bool(_OVERWRITTEN.search(root_text(record)))


def compile_in_capture(record: Record) -> bool:
    return ev.failed_in_capture(record) and ev.witnessed(record, "dynamo", "recompile") > 0


def may_be_tuning(record: Record) -> bool:
    """Failed in the capture, with a root that tuning can give: any but stream wiring."""
    return ev.failed_in_capture(record) and root_code(record) not in WIRING_CODES


def users_tuning(record: Record) -> bool:
    """A Triton autotune in the capture: a raw one, or Inductor's run of one that the user wrote."""
    inductors = (e for e in record.events if e.kind == "inductor_autotune" and e.capturing and e.data.get("users"))
    return may_be_tuning(record) and (ev.witnessed(record, "autotune") > 0 or any(inductors))


def inductors_tuning(record: Record) -> bool:
    return may_be_tuning(record) and ev.witnessed(record, "inductor_autotune") > 0


def library_status(record: Record) -> bool:
    """The root is a CUDA library's status, which carries no CUDA code."""
    return ev.failed_in_capture(record) and root_code(record) is None and bool(_LIBRARY.search(root_text(record)))


def wiring(record: Record) -> bool:
    """902, 904-908; or the capture touched a stream outside it, or began a capture inside the step."""
    if not ev.failed_in_capture(record):
        return False
    if root_code(record) in WIRING_CODES:
        return True
    return (
        root_code(record) in (900, 901, None) and ev.witnessed(record, "wait", "alloc", "launch", "capture_begin") > 0
    )


def copy_error(record: Record) -> bool:
    return ev.failed_in_capture(record) and bool(_COPY.search(root_text(record)))


def waits_there(record: Record) -> bool:
    """The subject's line that failed in the capture is one that waits for the device, or calls its allocator.

    Seen in this capture, or outside of one: torch may refuse the call, in words of its own, before it would wait.
    """
    root = ev.root_of(record)
    last = ev.last_subject_frame(root) if root else -1
    if last < 0 or library_status(record):
        return False
    line = (root.frames[last].file, root.frames[last].line)
    waits = (e.frame for e in record.events if e.kind in ("sync", "allocator") and e.frame)
    return line in {(frame.file, frame.line) for frame in waits}


def refused(record: Record) -> bool:
    """900, or torch's refusal to copy, to wait or to draw random numbers while capturing."""
    if not ev.failed_in_capture(record):
        return False
    without_code = root_code(record) is None and waits_there(record)
    known = copy_error(record) or bool(_GENERATOR.search(root_text(record)))
    return root_code(record) == 900 or without_code or known


def in_compiled_code(record: Record) -> bool:
    root = ev.root_of(record)
    return root is not None and ev.in_compiled_code(root)


def subjects_frame(record: Record) -> bool:
    """The subject's code is on the root's stack, and what it called was not compiled code."""
    root = ev.root_of(record)
    return root is not None and ev.last_subject_frame(root) >= 0 and not ev.in_compiled_code(root)


def out_of_memory(record: Record) -> bool:
    """The allocator gave up, or CUDA did (2): whose memory it is that fills the device, nothing here tells."""
    root = ev.root_of(record)
    failed = record.status == "fail" and root is not None
    return failed and (root.type == "OutOfMemoryError" or root.code == 2)


def python_error(record: Record) -> bool:
    """An exception without a CUDA code, raised by the subject's own line while capturing."""
    root = ev.root_of(record)
    return (
        ev.failed_in_capture(record)
        and root is not None
        and root.code is None
        and not out_of_memory(record)
        and bool(root.frames)
        and root.frames[-1].tag == "subject"
    )


def illegal_address_on_replay(record: Record) -> bool:
    return record.status == "fail" and record.stage == "replay" and root_code(record) == 700


def wrong(record: Record) -> bool:
    return record.status == "wrong"


def wrong_before_replay(record: Record) -> bool:
    """The first comparison that failed is a warm-up call or an uncaptured call."""
    return wrong(record) and bool(call := ev.first_wrong_call(record)) and not call.startswith("replay")


def wrong_on_replay(record: Record) -> bool:
    return wrong(record) and ev.first_wrong_call(record).startswith("replay")


def differs_by_itself(record: Record) -> bool:
    """Wrong in a plain call already, and two plain calls from the same state, generators too, do not agree."""
    facts = record.effective
    return wrong_before_replay(record) and facts.get("deterministic") is False and not facts.get("random")


def operator_writes_unsaid(record: Record) -> bool:
    """A custom operator breaks its own schema (torch.library.opcheck): it writes what it says it only reads."""
    return wrong(record) and any("test_schema" in said for said in record.effective.get("opcheck", {}).values())


def operator_described_wrong(record: Record) -> bool:
    """The compiled step fails or is wrong, and a custom operator's fake says of its outputs what is not (opcheck)."""
    said = record.effective.get("opcheck", {}).values()
    return (ev.failed_before_capture(record) or wrong(record)) and any("test_faketensor" in text for text in said)


def undeclared_change(record: Record) -> bool:
    """A call changed an input that is no part of the declared state."""
    return wrong(record) and any(not check.ok and check.output.endswith("undeclared") for check in record.checks)


def not_compilable(record: Record) -> bool:
    """Dynamo's Unsupported, a missing fake, or an operator that breaks its schema, before any capture."""
    return ev.failed_before_capture(record) and any(
        link.type in _UNSUPPORTED_TYPES or _NOT_REGISTERED.search(link.text) for link in record.chain
    )


def compiler_error(record: Record) -> bool:
    """The compiler raised, before any capture."""
    return ev.failed_before_capture(record) and any(
        link.module.startswith(("torch._dynamo", "torch._inductor", "torch._functorch", "torch._subclasses"))
        for link in record.chain
    )


def died(record: Record) -> bool:
    """The process ended inside the step without a result: a signal or an exit of its own."""
    return record.status == "fail" and not record.chain
