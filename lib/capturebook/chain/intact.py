"""What every run.json holds: looked at once, when a run is opened, so that none of its readers need ask."""

import re
from datetime import datetime

from pydantic import ValidationError

from ..records import Question

HELD = {"run": str, "nonce": str, "started": str, "code": str, "parameters": dict, "question": dict, "plan": list,
        "provenance": dict, "invocations": list}  # fmt: skip

FACTS = ("gpu", "no_gpu", "driver", "driver_cuda", "torch", "torch_cuda", "triton")
"""What is read of `provenance`, each None where there is none."""

INVOCATION = ("started", "ended")


def damage(info: dict) -> str:
    """The first of what a run.json lacks, or holds in no usable form; "" when it is whole."""
    for name, kind in HELD.items():
        if not isinstance(info.get(name), kind):
            return f"it holds no {name!r} as a {kind.__name__}"
    if "arm" not in info["question"] or not _is_question(info["question"]):
        return "'question' is none"
    if not all(isinstance(one, dict) and all(name in one for name in INVOCATION) for one in info["invocations"]):
        return "'invocations' are none"
    if not all(map(_is_time, [info["started"], *(one["started"] for one in info["invocations"])])):
        return "'started' is no time"
    return _facts(info["provenance"])


def _facts(facts: dict) -> str:
    if lost := [name for name in FACTS if name not in facts]:
        return f"'provenance' holds no {lost[0]!r}"
    if strange := [name for name in FACTS[1:] if not isinstance(facts[name], str | None)]:
        return f"'provenance' holds {strange[0]!r} as no text"
    gpu, versions = facts["gpu"], [facts["driver_cuda"], facts["torch_cuda"]]
    if gpu is not None and not (isinstance(gpu, dict) and isinstance(gpu.get("name"), str) and _is_sm(gpu.get("sm"))):
        return "'gpu' of its 'provenance' is none"
    if not all(re.match(r"\d+", version or "0") for version in versions):
        return "a CUDA version of its 'provenance' is none"
    return ""


def _is_question(given: dict) -> bool:
    try:
        Question(**given)
    except (ValidationError, TypeError):
        return False
    return True


def _is_time(stamp) -> bool:
    """Whether it is a time with its zone: stamps are compared with each other."""
    try:
        return datetime.fromisoformat(stamp).tzinfo is not None
    except (ValueError, TypeError):
        return False


def _is_sm(text) -> bool:
    return isinstance(text, str) and re.fullmatch(r"sm_\d+", text) is not None
