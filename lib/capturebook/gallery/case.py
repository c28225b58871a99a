"""What a case of the gallery is: a step, the question asked of it, and what is known about it beforehand."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPAIRED = ".fixed"
"""Ends the id of a case's fixed variant."""

FOLDER = Path(__file__).parent / "steps"

OWNER = {
    **{f"K{i}": "kernel" for i in range(1, 7)},
    **{f"B{i}": "stack" for i in (1, 2, 3, 4, 5, 8, 9)},
    **{f"B{i}": "environment" for i in (6, 7)},
    None: "none",
}
"""Owner by class; None for a sound step."""


@dataclass(frozen=True)
class Case:
    """One case. `step` is FILE:BUILD in steps/; its docstring tells the cause.

    cls: the class that is known, None for a sound step. question: factors of the arm; empty asks the default question
    (captured, and if that passes, compiled too). symptom: what its user sees. fix: what to do. fixed: another build of
    the same file, sound, that shows it; cured: a change of arm shows it (the verdict must say `fixed`).
    silent: no exception tells. source: the public report that it retells. cpu: the eager step runs without a GPU.
    cost: 1 uncompiled, 2 compiled or with an environment of its own, 3 slow.
    """

    id: str
    step: str
    cls: str | None
    symptom: str
    fix: str = ""
    question: str = ""
    fixed: str = ""
    cured: bool = False
    silent: bool = False
    source: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    cpu: bool = False
    cost: int = 1

    @property
    def owner(self) -> str:
        return OWNER[self.cls]

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.step.partition(':')[0]}.py"

    @property
    def build(self) -> str:
        return self.step.partition(":")[2]

    @property
    def target(self) -> str:
        """As a run names it: relative to the repository, like a user's own file."""
        return f"lib/capturebook/gallery/steps/{self.file.name}:{self.build}"

    @property
    def thread(self) -> str:
        """The public thread that it retells as people cite it: owner/repository#number; "" for none."""
        where, _, number = self.source.removeprefix("https://github.com/").rpartition("/issues/")
        return f"{where}#{number}" if self.source else ""

    def repaired(self) -> "Case | None":
        """The fixed variant as a case of its own, sound under the same question."""
        if not self.fixed:
            return None
        file = self.step.partition(":")[0]
        return Case(
            id=self.id + REPAIRED,
            step=f"{file}:{self.fixed}",
            cls=None,
            symptom=f"{self.id}, with its fix",
            question=self.question,
            options=self.options,
            env=self.env,
            cost=self.cost,
        )
