"""How many kernels the fused glue launches: the issue asked for 8 of a whole layer. Counted without a GPU."""

import pytest

from capturebook.measure.targets_parts import GLUE_KERNELS
from capturebook.subjects import glue, glue_chain
from launched_kernels import kernels_of

SITE = ["project_kernel", "collapse_kernel"]
"""mHC behind one sublayer and before the next, with the norm and its fp8."""


@pytest.mark.parametrize("batch", [1, 64])
def test_the_chain_of_a_layer_launches_eight_kernels(batch):
    launched = kernels_of(glue_chain.build(batch=batch, hidden=1024, heads=16))
    assert launched == [*SITE, "qkv_kernel", "q_heads_kernel", "out_heads_kernel", *SITE, "swiglu_kernel"]
    assert len(launched) <= GLUE_KERNELS[glue_chain.__name__ + ":build"]


def test_mhc_before_and_after_a_sublayer_launches_three():
    assert kernels_of(glue.build(batch=2, hidden=1024)) == [*SITE, "expand_kernel"]


def test_what_a_step_launches_otherwise_is_seen():
    """The count is of launches, not of operators or distinct kernels."""
    step = glue.build(batch=2, hidden=1024)
    once = step.fn
    step.fn = lambda streams, out: once(once(streams, out)[1], out)
    assert kernels_of(step) == [*SITE, "expand_kernel"] * 2
    assert kernels_of(step.twin) == []
