"""A step whose inputs are drawn for "cuda", probed on the CPU; and a twin that is not there."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from capturebook.probes import Probe, ProbePool, drive, without_gpu
from capturebook.records import Arm, Subject
from capturebook.subjects import Step
from test_probes import Run

DRAWN_FOR_CUDA = """
import torch
from capturebook.subjects import Step

weight = torch.ones(64, device="cuda")

def build(width: int = 64):
    draw = lambda seed: (torch.randn(width, generator=torch.Generator().manual_seed(seed)).cuda(),)
    twin = Step(fn=lambda x: x * 2, make_inputs=draw, reference=lambda x: x * 2)
    return Step(fn=lambda x: x * 2 * weight, make_inputs=draw, reference=lambda x: x * 2, twin=twin)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here: cuda is cuda")
def test_inputs_drawn_for_cuda_are_drawn_on_the_cpu(tmp_path):
    (tmp_path / "mine.py").write_text(DRAWN_FOR_CUDA)
    arms = [Arm(capture="none", variant=variant) for variant in ("step", "twin")]
    about = Subject(target=f"{tmp_path}/mine.py:build")
    with ProbePool(Run(tmp_path), on_event=lambda text: None) as pool:
        found = pool.run([Probe(kind="step", subject=about, arm=arm, args={"device": "cpu"}) for arm in arms])
    assert [(r.status, r.reason) for r in found] == [("pass", "")] * 2
    assert all(r.effective["device"] == "cpu" and len(r.checks) >= 3 for r in found)


def test_what_is_moved_to_cuda_is_a_copy_as_it_is_there():
    """A step that writes into its input must not change what the next draw takes it from."""
    base = torch.zeros(4)
    moved = Step(fn=lambda x: x, make_inputs=lambda seed: (base.cuda(), base.to("cuda"), base.to(device="cuda:0")))
    for x in without_gpu.given_on_cpu(moved).make_inputs(0):
        assert x.device.type == "cpu"
        x += 1
    assert base.sum() == 0


def test_no_generic_step_stands_in_for_a_users_twin_on_the_cpu():
    subject = Subject(target=f"{Path(__file__).parent}/planted_steps.py:right")
    probe = Probe(kind="trace", subject=subject, arm=Arm(capture="none", variant="twin"), args={"device": "cpu"})
    step, ended = drive.build_step(SimpleNamespace(probe=probe, args=probe.args, fields={}))
    assert step is None and ended["status"] == "skipped" and ended["reason"].startswith("the step has no twin")
