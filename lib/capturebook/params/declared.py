"""Every parameter of a run, declared once: type, unit, default, range and help."""

import difflib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from ..records import SUBJECT_FACTORS, arm_from, parse_factors
from .plain import IN_JSON, in_json, told

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Module = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")]


BUILT_IN, BUILT_IN_KERNELS = "capturebook.subjects.sparse_mla:build", ("simt", "mma", "gluon", "auto")
INDEXER, INDEXER_KERNELS = "capturebook.subjects.indexer:build", ("stock", "bounded")
"""The default subject, another that comes with it, and their kernels; said here because asking would import torch."""

KERNELS = {BUILT_IN: (BUILT_IN_KERNELS, "the built-in subject"), INDEXER: (INDEXER_KERNELS, "the indexer")}
"""By subject: its kernels, and what it is called."""


class ParameterError(ValueError):
    """Parameters that cannot be used: one line for each, naming it, what was given and what is allowed."""


def _declare(default, help: str, unit: str = "", allowed: str = "", **limits):
    """A field. `help` may hold no equals sign: papermill then overlooks the parameter and calls it unknown."""
    return Field(default, description=help, json_schema_extra={"unit": unit, "allowed": allowed}, **limits)


class Params(BaseModel):
    """A run's parameters. Every default is a one-line literal, so that a notebook's cell can show it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    run_dir: str = _declare("", "run folder to make or resume; empty makes one under outputs/")
    preset: str = _declare(
        "defaults", "what these values are called; part of a new run folder's name", min_length=1, max_length=64
    )
    hypothesis: str = _declare("story", "a name in params/hypotheses/, or a YAML file", min_length=1)
    question: str = _declare(
        "",
        "the arm asked about; empty asks what the hypothesis asks",
        allowed="factors of an arm, such as compile=default",
    )
    error: int = _declare(0, "CUDA error code seen in that arm; 0 if unknown", ge=0, le=999)
    subject: str = _declare(
        BUILT_IN,
        "what is probed",
        allowed="pkg.module:build or file.py:build",
        pattern=r"^[^:]+:[A-Za-z_][A-Za-z0-9_]*$",
    )
    options: dict[Name, Any] = _declare(
        {}, "keywords for the subject's build", allowed=f"a mapping of names to {IN_JSON}"
    )
    kernels: list[Name] = _declare(["simt", "mma"], "kernels compared", min_length=1, max_length=8)
    heads: Literal[8, 16, 32, 64, 128] = _declare(64, "query heads on this GPU")
    cache: Literal["bf16", "fp8"] = _declare("bf16", "latent cache of the built-in step: bf16 rows, or V4's fp8 pages")
    batches: list[Annotated[int, Field(ge=1, le=1024)]] = _declare(
        [1, 8, 64], "sweep: decode rows in one step", min_length=1, max_length=16
    )
    contexts: list[Annotated[int, Field(ge=1, le=1048576)]] = _declare(
        [2048, 8192], "sweep: context a row really has", "tokens", min_length=1, max_length=16
    )
    max_contexts: list[Annotated[int, Field(ge=1, le=1048576)]] = _declare(
        [131072],
        "sweep: context a row has room for, for a subject that takes it",
        "tokens",
        min_length=1,
        max_length=8,
    )
    env: dict[Name, str] = _declare({}, "environment variables that every probe's process starts with")
    preload: list[Module] = _declare([], "modules imported before the subject, in every probe", max_length=16)
    targets: list[Literal[80, 86, 89, 90, 100, 120]] = _declare(
        [80, 90, 100, 120], "compute capabilities that kernels are cross-compiled for", "sm", min_length=1, max_length=6
    )
    all_configs: bool = _declare(False, "cross-compile every autotune configuration, not only pinned and first")
    deadline: float = _declare(60.0, "time a probe may take before it is killed", "s", ge=1, le=3600)
    parallel: int = _declare(0, "correctness probes at a time; 0 chooses by cores", ge=0, le=64)
    samples: int = _declare(30, "timing samples of each sweep point", ge=5, le=1000)
    seed: int = _declare(0, "seed of the first inputs; others follow from it", ge=0, le=2147483647)
    memory_gib: float = _declare(
        0.0, "GPU memory a sweep point may use; 0 takes from what is free", "GiB", ge=0, le=4096
    )
    dram_tb_s: float = _declare(
        0.0, "memory bandwidth behind the floors; 0 measures it in the run", "TB/s", ge=0, le=100
    )
    tensor_tflops: float = _declare(
        0.0, "dense bf16 matmul rate behind the floors; 0 measures it in the run", "TFLOP/s", ge=0, le=100000
    )

    @model_validator(mode="after")
    def _agree(self):
        """What JSON cannot record, and values that are each fine and cannot stand together."""
        for name, value in self:
            if not in_json(value):
                raise ValueError(_line(name, value, allowed(name) if name == "options" else "Unicode text"))
        for name in ("kernels", "batches", "contexts", "max_contexts", "preload", "targets"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(_line(name, values, "each value once"))
        try:
            arm = arm_from(parse_factors(self.question))
        except ValueError as exc:
            raise ValueError(f"parameter question: given {json.dumps(self.question)}; {exc}") from None
        if self.subject in KERNELS:
            kernels, called = KERNELS[self.subject]
            text = f"{', '.join(kernels)} with {called}"
            if not set(self.kernels) <= set(kernels):
                raise ValueError(_line("kernels", self.kernels, text))
            if arm.kernel and arm.kernel not in kernels:
                raise ValueError(_line("question", self.question, f"kernel: {text}"))
        twice = {name: getattr(arm, name) for name in SUBJECT_FACTORS if getattr(arm, name) is not None}
        if self.subject == BUILT_IN:
            twice |= {"heads": self.heads, "cache": self.cache}
        for name in twice.keys() & self.options.keys():
            if self.options[name] != twice[name]:
                where = "question" if name in SUBJECT_FACTORS else f"parameter {name}"
                raise ValueError(
                    _line("options", {name: self.options[name]}, f"{json.dumps(twice[name])}, as the {where} says")
                )
        if self.subject == INDEXER and not 4 <= min(self.contexts) <= max(self.contexts) <= max(self.max_contexts):
            text = f"from 4, one key, to the largest of max_contexts, {max(self.max_contexts)}"
            raise ValueError(_line("contexts", self.contexts, text))
        if arm.context and arm.max_context and arm.context > arm.max_context:
            raise ValueError(_line("question", self.question, f"a context up to its max_context, {arm.max_context}"))
        if self.error and not self.question:
            raise ValueError(_line("error", self.error, "0 without a question: which arm showed that error?"))
        if any("\0" in value for value in self.env.values()):
            raise ValueError(_line("env", self.env, "text without a NUL, which ends a variable"))
        if "CUDA_VISIBLE_DEVICES" in self.env:
            given = self.env["CUDA_VISIBLE_DEVICES"]
            text = "any other variable: set this one for capturebook itself, which must see the GPU its probes use"
            raise ValueError(_line("env", {"CUDA_VISIBLE_DEVICES": given}, text))
        return self


def validate(given: dict) -> Params:
    """Parameters from names and values. Raises ParameterError, one line for each that is unknown or cannot be used."""
    lines = [unknown(name) for name in given if name not in Params.model_fields]
    try:
        params = Params(**{name: value for name, value in given.items() if name in Params.model_fields})
    except ValidationError as exc:
        for error in exc.errors(include_url=False):
            if error["loc"]:
                name = error["loc"][0]
                lines.append(_line(name, given[name], allowed(name)))
            else:
                lines.append(str(error["ctx"]["error"]))
    if lines:
        raise ParameterError("\n".join(dict.fromkeys(lines)))
    return params


def unknown(name: str) -> str:
    """The line about a parameter that nobody declared, with the nearest name that somebody did."""
    near = difflib.get_close_matches(str(name), Params.model_fields, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(Params.model_fields)}"
    return f"parameter {name}: nobody declared it; {hint}"


def allowed(name: str) -> str:
    """What a parameter may be, in words, from its declaration."""
    schema = Params.model_json_schema()["properties"][name]
    return schema["allowed"] or _words(schema)


def describe() -> list[dict]:
    """One row for each parameter: name, type, default, unit, allowed, help."""
    rows = []
    for name, schema in Params.model_json_schema()["properties"].items():
        row = {"name": name, "type": type_name(schema), "default": schema["default"], "unit": schema["unit"]}
        rows.append(row | {"allowed": allowed(name), "help": schema["description"]})
    return rows


def type_name(schema: dict) -> str:
    """A parameter's type as the notebooks write it: no unions, which papermill cannot read."""
    if schema["type"] == "array":
        return f"list[{type_name(schema['items'])}]"
    return {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict"}[schema["type"]]


def _words(schema: dict, several: bool = False) -> str:
    if "enum" in schema:
        return f"{'some' if several else 'one'} of {', '.join(str(v) for v in schema['enum'])}"
    kind, s = schema["type"], "s" if several else ""
    if kind == "array":
        least, most = schema.get("minItems", 0), schema["maxItems"]
        return f"a list of {least} to {most} {_words(schema['items'], several=True)}".replace(" some of", " of")
    if kind == "object":
        values = schema.get("patternProperties") or {"": schema.get("additionalProperties", {})}
        text = next(iter(values.values())) == {"type": "string"}
        return f"a mapping of names to {'text (quote numbers)' if text else 'values'}"
    if kind == "boolean":
        return "true or false"
    if kind == "string":
        name = "name" if "pattern" in schema else "text"
        least, most = schema.get("minLength"), schema.get("maxLength")
        return f"{name}{s if name == 'name' else ''}{', not empty' * bool(least)}" + (
            f", up to {most} characters" if most else ""
        )
    number = f"{'' if several else 'a '}{'whole ' if kind == 'integer' else ''}number{s}"
    return f"{number} from {schema['minimum']:g} to {schema['maximum']:.15g}"


def _line(name: str, given, allowed: str) -> str:
    return f"parameter {name}: given {told(given)}; allowed: {allowed}"
