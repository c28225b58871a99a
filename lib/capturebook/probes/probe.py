"""What to probe: one subject, one arm, one seed, in one process."""

from dataclasses import asdict, dataclass, field
from typing import Any

from ..records import Arm, Subject, probe_id


@dataclass(frozen=True)
class Probe:
    """One probe. `job` is the function that the child runs; `env` and the arm's env go to the child's server.

    `exclusive`: nothing else runs on the GPU meanwhile (timings). `deadline` is in seconds from the fork;
    `label` is for people and, like `role`, `deadline` and `exclusive`, no part of the probe's identity.
    """

    kind: str
    subject: Subject | None = None
    arm: Arm | None = None
    seed: int = 0
    role: str = "arm"
    watched: bool = True
    job: str = "capturebook.probes.drive:run"
    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    exclusive: bool = False
    deadline: float = 60.0
    label: str = ""
    notebook: str = ""
    repeat: int = 0

    @property
    def id(self) -> str:
        return probe_id(
            self.kind,
            self.subject,
            self.arm,
            self.seed,
            watched=self.watched,
            job=self.job,
            args=self.args,
            env=self.env,
            preload=list(self.preload),
            repeat=self.repeat,
        )

    @property
    def environment(self) -> dict[str, str]:
        """Variables that the child's server is started with."""
        return {**self.env, **(self.arm.env if self.arm else {})}

    @property
    def name(self) -> str:
        return self.label or (self.arm.label() if self.arm else self.kind)

    def to_json(self) -> dict:
        data = asdict(self)
        data["subject"] = self.subject.model_dump() if self.subject else None
        data["arm"] = self.arm.model_dump() if self.arm else None
        return data

    @classmethod
    def from_json(cls, data: dict) -> "Probe":
        data = dict(data)
        data["subject"] = Subject(**data["subject"]) if data["subject"] else None
        data["arm"] = Arm(**data["arm"]) if data["arm"] else None
        data["preload"] = tuple(data["preload"])
        return cls(**data)
