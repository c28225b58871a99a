"""What a captured graph holds: its kernels by name, its other nodes, and whether it has parallel branches.

Read through the driver's own functions (cuGraphGetNodes, cuGraphGetEdges, cuFuncGetName), by ctypes: torch offers the
handle of a kept graph but not its nodes.
"""

import ctypes
import functools
from collections import Counter

_KINDS = {0: "kernel", 1: "memcpy", 2: "memset", 3: "host", 4: "graph", 5: "empty", 6: "wait_event", 7: "event_record"}
_MAX_NODES = 4000


class _KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS (v2) of cuda.h."""

    _fields_ = [
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("params", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
    ]


@functools.cache
def _driver():
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *args) -> None:
    code = getattr(_driver(), name)(*args)
    if code:
        raise RuntimeError(f"{name} returned {code}")


def describe(handle: int) -> dict:
    """{"kernels": {name: count}, "nodes": {kind: count}, "parallel": bool} of a cudaGraph_t.

    `parallel` is true when two nodes are ordered neither way, so that they may overlap on replay.
    """
    graph = ctypes.c_void_p(handle)
    count = ctypes.c_size_t(0)
    _call("cuGraphGetNodes", graph, None, ctypes.byref(count))
    if count.value == 0:  # asked for its nodes, the driver says CUDA_ERROR_INVALID_VALUE
        return {"kernels": {}, "nodes": {}, "parallel": False}
    nodes = (ctypes.c_void_p * count.value)()
    _call("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
    kinds, kernels = Counter(), Counter()
    for node in nodes[: count.value]:
        kind = ctypes.c_int()
        _call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        kinds[_KINDS.get(kind.value, f"type {kind.value}")] += 1
        if kind.value == 0:
            kernels[_kernel_name(node)] += 1
    return {"kernels": dict(kernels), "nodes": dict(kinds), "parallel": _parallel(graph, list(nodes[: count.value]))}


def _kernel_name(node: int) -> str:
    params = _KernelParams()
    _call("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(node), ctypes.byref(params))
    name = ctypes.c_char_p()
    if params.func:
        _call("cuFuncGetName", ctypes.byref(name), ctypes.c_void_p(params.func))
    else:
        _call("cuKernelGetName", ctypes.byref(name), ctypes.c_void_p(params.kern))
    return name.value.decode(errors="replace")


def _parallel(graph, nodes: list[int]) -> bool | None:
    """Whether the nodes form anything but a chain. None above 4000 nodes: not looked at."""
    if len(nodes) > _MAX_NODES:
        return None
    count = ctypes.c_size_t(0)
    _call("cuGraphGetEdges_v2", graph, None, None, None, ctypes.byref(count))
    if count.value == 0:
        return len(nodes) > 1
    sources = (ctypes.c_void_p * max(count.value, 1))()
    targets = (ctypes.c_void_p * max(count.value, 1))()
    data = (ctypes.c_uint64 * max(count.value, 1))()
    _call("cuGraphGetEdges_v2", graph, sources, targets, data, ctypes.byref(count))
    return not is_chain(nodes, list(zip(sources[: count.value], targets[: count.value])))


def is_chain(nodes: list, edges: list[tuple]) -> bool:
    """Whether a directed acyclic graph orders all its nodes: each step of a topological sort has one candidate."""
    after: dict = {node: [] for node in nodes}
    waiting = dict.fromkeys(nodes, 0)
    for source, target in edges:
        after[source].append(target)
        waiting[target] += 1
    ready = [node for node in nodes if waiting[node] == 0]
    while ready:
        if len(ready) > 1:
            return False
        for target in after[ready.pop()]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return True
