"""The explorer's panels: choose an arm and run one probe; look at a finished run. `text()` says what a panel shows.

Callbacks start, poll and stop a child process, and read files. Nothing is computed here and torch is not imported,
so the kernel stays free while a probe runs.
"""

import html
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

import ipywidgets as w
from IPython.display import display

from ..paths import resolve
from ..records import Arm
from .explorer_browse import Browser, record_row, run_names
from .explorer_factors import FactorControls
from .explorer_probe import ProbeRun, probe_arguments

WIDE = w.Layout(width="100%")


class Twin:
    """Text of a panel as a cell's output, replaced whenever the panel changes; a saved notebook holds the last one."""

    def __init__(self, text):
        self._text, self._shown, self._handle = text, None, None

    def show(self) -> None:
        """Make the output here, in the cell that is running."""
        self._shown = self._text()
        self._handle = display({"text/plain": self._shown}, raw=True, display_id=True)

    def update(self) -> None:
        text = self._text()
        if self._handle is not None and text != self._shown:
            self._shown = text
            self._handle.update({"text/plain": text}, raw=True)


class ProbePanel:
    """Choose an arm of one target, run one probe of it in a child process, stop it.

    `parameters` is Params as a dict: subject, options, env, preload, deadline, and kernels to suggest. `starts` are
    arms to begin from, {name: Arm}; the first is chosen. A probe makes its own run folder under `outputs`. `gpu` says
    whether there is one here. `command` is what runs a probe, without its arguments.
    """

    def __init__(
        self,
        parameters: dict,
        starts: dict[str, Arm],
        outputs: Path,
        gpu: bool = True,
        command: list[str] | None = None,
    ):
        self.parameters, self.outputs, self.gpu = parameters, outputs, gpu
        self.command = command or [sys.executable, "-m", "capturebook"]
        self.starts = starts
        self.probe: ProbeRun | None = None
        self.twin = Twin(self.text)
        self.target = w.Text(value=parameters["subject"], description="target", layout=w.Layout(width="540px"))
        self.start = w.Dropdown(options=list(starts), description="begin from", layout=w.Layout(width="360px"))
        self.factors = FactorControls(next(iter(starts.values())), {"kernel": parameters["kernels"]}, self.refresh)
        self.run = w.Button(description="Run one probe", icon="play", button_style="primary")
        self.stop = w.Button(description="Stop", icon="stop", button_style="danger", disabled=True)
        self.chosen, self.progress, self.said = w.HTML(), w.HTML(), w.HTML()
        self.start.observe(self._begin_from, "value")
        self.target.observe(lambda _: self.refresh(), "value")
        self.run.on_click(lambda _: self.begin())
        self.stop.on_click(lambda _: self.end())
        buttons = w.HBox([self.run, self.stop, self.said])
        self.widget = w.VBox(
            [w.HBox([self.target, self.start]), self.factors.widget, self.chosen, buttons, self.progress], layout=WIDE
        )
        self.refresh()

    @classmethod
    def of(cls, session) -> "ProbePanel":
        """For a notebook's session: its subject, the arm its question is about, and the arms its run has planned."""
        starts = {"the question": session.question.arm}
        starts |= {entry["id"]: Arm(**entry["arm"]) for entry in session.run.info["plan"]}
        gpu = session.run.info["provenance"]["gpu"] is not None
        return cls(session.params.model_dump(), starts, resolve("outputs"), gpu)

    def _ipython_display_(self) -> None:
        display(self.widget)

    def say(self) -> None:
        """The panel in words, as this cell's output."""
        self.twin.show()

    def begin(self) -> None:
        """Start one probe of the chosen arm, unless one is running or the choice is not an arm."""
        if self.running or self._problem():
            return
        run = self.outputs / f"explorer-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
        command = [*self.command, *self._arguments(), "--run-dir", str(run)]
        self.probe = ProbeRun(command, run, on_change=self.refresh)
        self.probe.begin()
        self.refresh()

    def end(self) -> None:
        """Ask for the end of the probe and of all that it started."""
        if self.probe:
            self.probe.end()
        self.refresh()

    @property
    def running(self) -> bool:
        return self.probe is not None and self.probe.active

    def _begin_from(self, change) -> None:
        self.factors.set(self.starts[change["new"]])
        self.refresh()

    def _arguments(self) -> list[str]:
        return probe_arguments({**self.parameters, "subject": self.target.value.strip()}, self.factors.arm(), self.gpu)

    def _problem(self) -> str:
        """Why the choice cannot be run, in one line; "" when it can."""
        try:
            return "" if self._arguments()[1] else "target: nothing given; allowed: pkg.mod:build or file.py:build"
        except ValueError as exc:
            return str(exc).removeprefix("question: ")

    def refresh(self) -> None:
        """Make widgets and text say what is chosen and what the probe does."""
        problem, probe = self._problem(), self.probe
        self.chosen.value = _pre("\n".join([problem or self._command_text(), *self._machine()]), error=bool(problem))
        self.run.disabled = self.running or bool(problem)
        self.stop.disabled = not self.running or probe.state == "stopping"
        self.said.value = html.escape(probe.headline() if probe else "")
        self.progress.value = _stages(probe) if probe else ""
        self.twin.update()

    def _command_text(self) -> str:
        return "capturebook " + shlex.join(self._arguments())

    def _machine(self) -> list[str]:
        return [] if self.gpu else ["no CUDA GPU here: an arm with capture=none runs on the CPU, any other is skipped"]

    def headline(self) -> str:
        """One line on the probe."""
        return f"probe: {self.probe.headline()}" if self.probe else "no probe started"

    def text(self) -> str:
        """The choice, and how far the probe is or what came of it."""
        problem = self._problem()
        lines = [f"not runnable: {problem}"] if problem else [f"arm       {self.factors.arm().label()}"]
        lines += [] if problem else [f"command   {self._command_text()}"]
        lines += [f"machine   {line}" for line in self._machine()]
        if self.probe is None:
            return "\n".join([*lines, "probe     none started"])
        return "\n".join([*lines, self.probe.text()])


SIGNS = {"done": ("✓", "#1a7f37"), "now": ("▶", "#0550ae"), "last": ("✗", "#b42318"), "ahead": ("○", "#6e7781")}
"""Sign and colour of a stage: the sign alone says it too."""


def _stages(probe: ProbeRun) -> str:
    """The stages in a row, with the second at which each began."""
    spans = []
    for stage, mark in probe.marks().items():
        sign, colour = SIGNS[mark]
        when = f" {probe.stages[stage]:.1f} s" if stage in probe.stages else ""
        weight = "bold" if mark in ("now", "last") else "normal"
        spans.append(
            f'<span style="color:{colour};font-weight:{weight};margin-right:1.3em">{sign} {stage}{when}</span>'
        )
    return "".join(spans)


def _pre(text: str, error: bool = False) -> str:
    colour = "color:#b42318;" if error else ""
    return f'<pre style="{colour}white-space:pre-wrap;line-height:1.35;margin:4px 0">{html.escape(text)}</pre>'


class BrowsePanel:
    """Pick a run under `outputs` (by default the repository's) and one of its records; reads files only."""

    def __init__(self, outputs: Path | None = None):
        self.browser = Browser(outputs or resolve("outputs"))
        self.twin = Twin(self.browser.text)
        self.runs = w.Dropdown(description="run", layout=w.Layout(width="420px"))
        self.again = w.Button(description="Look again", icon="refresh")
        self.shown = w.Dropdown(description="show", layout=w.Layout(width="260px"))
        self.table = w.Select(rows=12, layout=WIDE)
        self.table.add_class("capturebook-records")
        style = w.HTML(
            "<style>.capturebook-records select {font-family: var(--jp-code-font-family, monospace)}</style>"
        )
        self.widget = w.VBox([style, w.HBox([self.runs, self.shown, self.again]), self.table], layout=WIDE)
        self.look()
        self.runs.observe(lambda _: self._open(), "value")
        self.shown.observe(lambda _: self._show(), "value")
        self.table.observe(lambda _: self._pick(), "index")
        self.again.on_click(lambda _: self.look())

    def _ipython_display_(self) -> None:
        display(self.widget)

    def say(self) -> None:
        """The panel in words, as this cell's output."""
        self.twin.show()

    def headline(self) -> str:
        """One line on what is looked at."""
        run = self.browser.run
        return f"{run.name} is shown, with {len(self.browser.records)} records" if run else "no finished run to show"

    def look(self) -> None:
        """List the runs anew, and read the chosen one again, or the newest."""
        names, now = run_names(self.browser.outputs), self.runs.value
        chosen = now if now in names else names[0] if names else None
        if names != list(self.runs.options) or chosen != now:
            self.runs.options = names
            self.runs.value = chosen
        self._open()

    def _open(self) -> None:
        if self.runs.value is None:
            return
        self.browser.open(self.runs.value)
        self.shown.options = self.browser.selections()
        self.shown.value = self.browser.shown
        self._fill()

    def _show(self) -> None:
        if self.shown.value and self.shown.value != self.browser.shown:
            self.browser.show(self.shown.value)
            self._fill()

    def _fill(self) -> None:
        # A list box folds repeated blanks, and the columns need them.
        rows = [record_row(record, self.browser.base).replace(" ", "\u00a0") for record in self.browser.rows()]
        self.table.options = [(row, index) for index, row in enumerate(rows)]
        self.table.index = 0 if rows else None
        self.twin.update()

    def _pick(self) -> None:
        if self.table.index is not None:
            self.browser.pick(self.table.index)
        self.twin.update()
