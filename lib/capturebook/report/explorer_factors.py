"""The explorer's controls: one for each factor that records.Arm declares, with the values that it declares."""

import shlex
from types import NoneType
from typing import Literal, get_args, get_origin

import ipywidgets as w

from ..records import OPTION, SUBJECT_FACTORS, Arm, arm_from, parse_factors, write_option

COMPILE_FACTORS = ("compile", "fullgraph", "dynamic", "capture")
STEP_FACTORS = (*SUBJECT_FACTORS, "options")
GROUPS = {
    "The step": STEP_FACTORS,
    "Compile and capture": COMPILE_FACTORS,
    "How it is used": tuple(n for n in Arm.model_fields if n not in (*STEP_FACTORS, *COMPILE_FACTORS)),
}
PAIRS = ("env", "options")
"""Factors that hold values by name, written `NAME=value NAME=value`."""

UNSET = "(unset)"
"""How a factor that is None ("the subject's default") is written in a control."""


def choices(name: str) -> list | None:
    """The values that Arm declares for a factor, None among them if it may be unset; None for free text."""
    kind = Arm.model_fields[name].annotation
    parts = [part for part in get_args(kind) if part is not NoneType] if get_origin(kind) is not Literal else [kind]
    optional = [None] if NoneType in get_args(kind) else []
    core = parts[0] if parts else kind
    if get_origin(core) is Literal:
        return [*optional, *get_args(core)]
    return [*optional, True, False] if core is bool else None


def _word(value) -> str:
    return UNSET if value is None else str(value).lower() if isinstance(value, bool) else str(value)


class FactorControls:
    """One control a factor, in the groups of GROUPS; `arm()` reads them, `set(arm)` writes them.

    `suggestions` are values to offer for a factor that Arm declares as free text, e.g. {"kernel": ["simt", "mma"]}.
    """

    def __init__(self, arm: Arm, suggestions: dict[str, list[str]], on_change):
        self._setting = False
        self.controls = {name: self._control(name, suggestions.get(name, [])) for name in Arm.model_fields}
        self.set(arm)
        for control in self.controls.values():
            control.observe(lambda _: self._setting or on_change(), "value")
        self.widget = w.HBox([self._group(title, names) for title, names in GROUPS.items()])

    def _control(self, name: str, suggestions: list[str]) -> w.Widget:
        look = dict(description=name, layout=w.Layout(width="270px"), style={"description_width": "90px"})
        values = choices(name)
        if values is not None:
            return w.Dropdown(options=[_word(value) for value in values], **look)
        hint = "NAME=value NAME=value" if name in PAIRS else UNSET
        return w.Combobox(options=suggestions, placeholder=hint, **look)

    def _group(self, title: str, names) -> w.VBox:
        return w.VBox([w.HTML(f"<b>{title}</b>"), *(self.controls[name] for name in names)])

    def set(self, arm: Arm) -> None:
        """Write all factors of an arm; `on_change` is not called."""
        self._setting = True
        for name, control in self.controls.items():
            value = getattr(arm, name)
            if name in PAIRS:
                write = write_option if name == "options" else str
                control.value = shlex.join(f"{k}={write(v)}" for k, v in sorted(value.items()))
            else:
                control.value = "" if value is None and choices(name) is None else _word(value)
        self._setting = False

    def arm(self) -> Arm:
        """The arm chosen. Raises ValueError, one line, naming the factor, what was given and what is allowed."""
        factors = {"env": _pairs("env", self.controls["env"].value)}
        texts = {name: control.value.strip() for name, control in self.controls.items() if name not in PAIRS}
        texts |= {OPTION + name: text for name, text in _pairs("options", self.controls["options"].value).items()}
        for name, text in texts.items():
            if text in ("", UNSET) and not name.startswith(OPTION):
                continue
            if "," in text:
                raise ValueError(f"{name}: {text!r} is not one value")
            factors.update(parse_factors(f"{name}={text}"))
        return arm_from(factors)


def _pairs(factor: str, text: str) -> dict[str, str]:
    allowed = "allowed: NAME=value NAME=value, a value with spaces in quotes"
    try:
        pairs = [part.partition("=") for part in shlex.split(text)]
    except ValueError as exc:
        raise ValueError(f"{factor}: {text!r}: {str(exc).lower()}; {allowed}") from None
    for name, equals, _ in pairs:
        if not name or not equals:
            raise ValueError(f"{factor}: {text!r}; {allowed}")
    return {name: value for name, _, value in pairs}
