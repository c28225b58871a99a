"""Real calls of every kernel that a decode step may launch, for those who compile them: the build check."""

from ...kernels.compressor.examples import examples as compressor
from ...kernels.glue.examples import examples as glue
from ...kernels.indexer.examples import examples as indexer
from ...kernels.routing.examples import examples as routing
from ...kernels.sparse_mla.examples import Example
from ...kernels.sparse_mla.examples import examples as attention


def examples(sm: int) -> list[Example]:
    """Attention over a bf16 cache, indexer, glue, compressors and routing, each as its own examples have it."""
    return [example for family in (attention, indexer, glue, compressor, routing) for example in family(sm)]
