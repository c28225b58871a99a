"""Start-up logs: tracebacks that Python itself prints, as sglang and vLLM put them into their logs."""

import pytest
from startlogs import SGLANG, VLLM, printed

from capturebook.launch.servers.pointing import in_capture, point
from capturebook.launch.servers.startlog import chains, root_chain


@pytest.mark.parametrize("how", [SGLANG, VLLM])
def test_the_root_is_what_happened_first(tmp_path, how):
    chain = root_chain(printed(tmp_path, how, "raise root", "ISOLATION"))
    assert [link.type for link in chain] == ["Exception", "RuntimeError", "RuntimeError"]
    assert [link.code for link in chain] == [901, 901, 905]
    assert chain[-1].name == "cudaErrorStreamCaptureIsolation" and "mem-fraction" not in chain[-1].text
    assert [(f.file, f.function) for f in chain[-1].frames][-1] == ("srv/part.py", "step")
    assert "Possible solutions" in chain[0].text and "Received sigquit" not in chain[0].text
    assert in_capture(chain)
    pointing = point(chain)
    assert pointing.classes == ("K3", "B5") and not pointing.memory
    assert "905 cudaErrorStreamCaptureIsolation" in pointing.says and "torch.compile" in pointing.decide


def test_processes_that_write_at_once_are_told_apart(tmp_path):
    lines = printed(tmp_path, VLLM, "raise root", "ISOLATION")
    first, second = chains(lines)
    assert [link.type for link in second] == ["RuntimeError", "ValueError"]
    assert "See root cause above" in second[0].text and first[-1].code == 905


@pytest.mark.parametrize(
    ("folder", "file", "root", "classes"),
    [
        ("triton/runtime", "autotuner.py", "UNSUPPORTED", ("K1",)),
        ("torch/_inductor/runtime", "triton_heuristics.py", "UNSUPPORTED", ("B2",)),
        ("torch/_dynamo", "convert_frame.py", "UNSUPPORTED", ("B1",)),
        ("torch/_inductor", "cudagraph_trees.py", "UNSUPPORTED", ("B3",)),
        ("srv", "layer.py", "UNSUPPORTED", ("K2",)),
        ("srv", "layer.py", 'RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED when calling cublasCreate")', ("B4",)),
        ("torch/_functorch", "runtime.py", "ISOLATION", ("B5", "K3")),
        ("srv", "layer.py", "INVALIDATED", ("B6",)),
    ],
)
def test_frames_stand_in_for_witnesses(tmp_path, folder, file, root, classes):
    # A file with the library's name, and a function with the tuner's: what the real one's traceback shows.
    lines = printed(tmp_path, SGLANG, "raise root", root, "srv")
    place = "/usr/lib/python3/site-packages/" + f"{folder}/{file}"
    lines = [line.replace(str(tmp_path / "site-packages/srv/part.py"), place) for line in lines]
    lines = [line.replace("in step", "in autotune_to_one_config") if place in line else line for line in lines]
    chain = root_chain(lines)
    assert chain[-1].frames[-1].file == f"{folder}/{file}"
    assert point(chain).classes == classes


def test_memory_is_the_one_cause_for_which_the_servers_hints_are_meant(tmp_path):
    out_of_memory = "type('OutOfMemoryError', (RuntimeError,), {})('CUDA out of memory. Tried to allocate 2.00 GiB.')"
    pointing = point(root_chain(printed(tmp_path, SGLANG, "raise root", out_of_memory)))
    assert pointing.memory and pointing.classes == ()


def test_outside_a_capture_no_class_of_a_capture_is_named(tmp_path):
    how = "import traceback\ntry:\n    step(ROOT)\nexcept Exception:\n    print(traceback.format_exc())\n"
    root = "cuda('cudaErrorNoKernelImageForDevice', 'no kernel image is available for execution on the device')"
    pointing = point(root_chain(printed(tmp_path, how, "raise root", root)))
    assert pointing.classes == () and pointing.todo() == "" and "209 cudaErrorNoKernelImageForDevice" in pointing.says


def test_a_log_without_a_traceback_points_nowhere():
    assert root_chain(["INFO:     Application startup complete.", ""]) == [] and point([]) is None


def test_records_name_no_folder_of_the_machine(tmp_path):
    chain = root_chain(printed(tmp_path, SGLANG, "raise root", "ISOLATION"))
    assert str(tmp_path) not in "".join(frame.file for link in chain for frame in link.frames)
