"""How a step is taken through compile, warm-up, capture and replay: the default way, or the step's own `drive`.

The default, for each call and replay: restore the state, advance(i), snapshot, run, compare with the reference
computed from that snapshot. Capture success proves nothing: three replays with other inputs are compared.
"""

from ..subjects.loader import SubjectError
from . import diagnose, timed
from .compare import compared
from .compiled import compiled, warm_stack
from .exceptions import code_in, text_of
from .handle import Handle, place

REPLAYS = 3


def warm_ups(arm) -> int:
    """How many warm-up calls an arm makes."""
    return int(arm.warmup[4:]) if arm.warmup.startswith("warm") else 0


class Protocol:
    """One probe's way from compile to its last comparison; `checks` are its comparisons, `bad` the wrong ones."""

    def __init__(self, ctx, calls, captures, witnesses):
        self._ctx, self._calls, self._captures, self._witnesses = ctx, calls, captures, witnesses
        self._arm = ctx.probe.arm
        self._fn = None
        self._handle: Handle | None = None

    @property
    def checks(self) -> list:
        return self._calls.checks + (self._handle.checks if self._handle else [])

    @property
    def bad(self) -> list:
        return [check for check in self.checks if not check.ok]

    def drive(self) -> None:
        """Everything up to the last comparison, and times if they are asked for and nothing was wrong."""
        import torch

        arm, calls = self._arm, self._calls
        if calls.device.type == "cuda":
            torch.cuda.init()
        self._fn = compiled(calls.step, arm)
        if calls.step.drive is not None and arm.capture != "none":
            return self._own()
        self._ctx.stage("compile" if arm.compile != "none" and warm_ups(arm) else "warmup")
        if arm.warmup == "kernel_cold":
            warm_stack(arm, calls)
        for number in range(warm_ups(arm)):
            self._warm_up(number + 1)
            self._ctx.stage("warmup")
        if arm.capture == "none":
            self._ctx.stage("verify")
            for number in range(REPLAYS):
                calls.eager(self._fn, f"call {number + 1}")
            return self._time("call", lambda: calls.call(self._fn))
        try:
            with self._captures.open(stream=calls.stream, before=calls.prepare_capture):
                calls.capture(self._fn)
        except Exception as error:
            if warm_ups(arm) and calls.step.advance and not code_in(error):
                self._rehearse()
            raise
        calls.took_capture()
        if calls.all_on_host():
            raise SubjectError(
                "step: nothing of it is on the GPU: its inputs, outputs and state are ordinary host memory"
            )
        if "frozen_advance_passes" in self._ctx.fields.get("payload", {}):
            self._ctx.fields["payload"]["frozen_advance_passes"] = True
        self._ctx.stage("replay")
        for number in range(REPLAYS):
            calls.replay(self._captures.last, f"replay {number + 1}")
        return self._time("replay", lambda: calls.replayed(self._captures.last))

    def _warm_up(self, number: int) -> None:
        """One warm-up call. Where the compiled step fails, its custom operators are checked: one may describe itself
        wrongly, which the error need not say."""
        try:
            self._calls.warm_up(self._fn, f"warm-up {number}")
        except Exception as error:
            if self._arm.compile != "none" and not code_in(error):
                facts = self._ctx.fields.setdefault("effective", {})
                self._read(facts, "opcheck", lambda: diagnose.operators(self._calls))
            raise

    def _rehearse(self) -> None:
        """After a failure without a CUDA code (a library's status, say) in a capture whose path `advance` may choose.

        payload.frozen_advance_passes: whether the same call is captured once this thread and stream have run it.
        """
        import torch

        calls, payload = self._calls, self._ctx.fields.setdefault("payload", {})
        payload["frozen_advance_passes"] = False
        try:
            calls.rehearse(self._fn)
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=calls.stream, capture_error_mode=self._arm.capture):
                calls.capture(self._fn)
            payload["frozen_advance_passes"] = True
        except Exception as error:
            text = text_of(error).partition("\n")[0][:200]
            calls.caveats.append(f"nor is it captured after the same call ran outside: {type(error).__name__}: {text}")

    def _own(self) -> None:
        """The step drives itself. A failure in a capture or replay that it made without us is placed there too."""
        self._handle = Handle(self._ctx, self._calls, self._captures, self._fn)
        self._ctx.stage("warmup")
        try:
            self._calls.step.drive(self._handle)
        except BaseException as error:
            stage = place(error)
            if stage:
                self._ctx.stage(stage)
            raise
        finally:
            self._ctx.fields.setdefault("effective", {})["phases"] = self._handle.phases

    def _time(self, what: str, go) -> None:
        count = self._ctx.args.get("samples")
        if count and not self.bad:
            self._ctx.stage("time")
            self._ctx.fields["samples"] = {what: timed.samples(self._calls, go, count)}

    def diagnose(self) -> None:
        """Readings about a result that was wrong, and whether a compiled step would be compiled again."""
        facts, calls = self._ctx.fields["effective"], self._calls
        told = {check.output for check in self.checks if compared(check)}
        empty = dict.fromkeys(check.output for check in self.checks if check.output not in told)
        if not told:
            calls.caveats.append("nothing was compared: only that the step ran is known")
        elif empty:
            calls.caveats.append(f"not compared, since no call gives it a finite value: {', '.join(empty)}")
        if self.bad:
            if self._captures.last is not None:
                missing = self._ctx.fields.setdefault("graph", {})
                copies = missing["nodes"].get("memcpy", 0) if "nodes" in missing else None
                last = self._captures.last
                self._read(missing, "missing", lambda: diagnose.kernels_missing(calls, self._fn, last, copies))
            self._read(facts, "deterministic", lambda: diagnose.deterministic(calls))
            if isinstance(facts.get("deterministic"), dict):
                facts |= facts.pop("deterministic")
            self._read(facts, "opcheck", lambda: diagnose.operators(calls))
        elif self._arm.compile != "none" and self._ctx.probe.watched and self._handle is None:
            self._read(facts, "recompiles", lambda: diagnose.recompiles(calls, self._fn))
            if facts.get("recompiles"):
                self._witnesses.note("recompile", facts["recompiles"], capturing=False, same_shape=True)
                calls.caveats.append(f"a further call of the same shape is compiled anew: {facts['recompiles'][:200]}")

    def _read(self, fields: dict, name: str, measure) -> None:
        """Add one reading. The result stays what it is when the reading fails; the caveat says so."""
        try:
            fields[name] = measure()
        except Exception as error:
            text = text_of(error).partition("\n")[0][:200]
            self._calls.caveats.append(f"{name} was not read: {type(error).__name__}: {text}")
