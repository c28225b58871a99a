"""What of a run may not change between its start and a resume: all that its records depend on."""

import json

from ..records import Question


def first_change(info: dict, then: dict, parameters, hypothesis: dict, question: Question, facts: dict) -> str:
    """The first of what a run was made with that is another one now, with both; "" when all is as it was.

    `info` is its run.json, `then` its hypothesis; the rest is what a resume would go on with.
    """
    recorded, given = dict(info["parameters"]), parameters.model_dump()
    recorded["run_dir"] = given["run_dir"] = ""
    pairs = [(f"parameter {name}", recorded.get(name), given.get(name)) for name in sorted({*recorded, *given})]
    pairs.append(("hypothesis", then, json.loads(json.dumps(hypothesis))))
    pairs.append(("question", info["question"], json.loads(json.dumps(question.model_dump()))))
    pairs.append(("code tree", info["code"], facts["code"]))
    pairs.append(("GPU", _gpu(info["provenance"]), _gpu(facts)))
    pairs += [(name, info["provenance"][name], facts[name]) for name in ("driver", "torch", "triton")]
    for what, was, now in pairs:
        if was != now:
            return what if isinstance(now, dict) else f"{what}: {now!r} now, {was!r} in the run"
    return ""


def _gpu(facts: dict) -> str | None:
    """Which GPU, told apart from its twins in the same host."""
    return f"{facts['gpu']['name']} {facts['gpu'].get('id')}" if facts["gpu"] else None
