"""What all tests share: where the repository lies, child processes that find the package, GPU tests skipped aloud."""

import importlib.util
import os
import signal
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]

# Children (probes, notebooks, the command line) are started with `sys.executable`, which need not have us installed.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPO / "lib"), os.environ.get("PYTHONPATH")]))
os.environ["MPLBACKEND"] = "Agg"
# Tests run side by side; a pool of threads in each would wait for a core by spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Else Inductor's first compilation for the CPU asks g++ about seven instruction sets, in every new cache: 8 of 14 s.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# After `pip install --target` nbconvert's templates lie beside the packages, where Jupyter does not look.
BESIDE = Path(importlib.util.find_spec("ipykernel").origin).parents[1] / "share" / "jupyter"
os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(BESIDE), os.environ.get("JUPYTER_PATH")]))


@pytest.fixture(scope="session")
def repo() -> Path:
    """The repository's root."""
    return REPO


def _module_path_ends_with_it():
    before = os.environ["PYTHONPATH"]
    yield
    os.environ["PYTHONPATH"] = before


# What is added to PYTHONPATH (by the command line for a subject's folder, by a file's fixture for its steps) ends with
# the test, or with the file, that added it: else files are named otherwise in whatever file this worker runs next.
of_a_test = pytest.fixture(_module_path_ends_with_it, autouse=True, name="module_path_of_a_test")
of_a_file = pytest.fixture(_module_path_ends_with_it, autouse=True, scope="module", name="module_path_of_a_file")


@pytest.fixture(scope="session")
def _server(tmp_path_factory):
    """A probe server of this worker, for the files that ask for it: to start one imports torch anew."""
    from capturebook.probes import servers

    before = os.environ["PYTHONPATH"]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPO / "tests"), before])
    server = servers.start_shared(tmp_path_factory.mktemp("server") / "probe-server.log")
    os.environ["PYTHONPATH"] = before
    server.wait_ready()
    yield server
    server.close()


@pytest.fixture(scope="module")
def probe_server(_server, module_path_of_a_file):
    """A file's pools use the worker's server, as a chain's notebooks share one. It finds planted modules in tests/,
    and so does what names files here."""
    from capturebook.probes import servers

    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPO / "tests"), os.environ["PYTHONPATH"]])
    os.environ[servers.SHARED] = _server.path
    yield
    del os.environ[servers.SHARED]


def _why_no_gpu() -> str:
    """Empty when NVML finds a GPU. NVML, because torch.cuda here would spoil every later fork."""
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as exc:
        return f"needs a CUDA GPU; NVML says: {exc}"
    return "" if count else "needs a CUDA GPU; NVML finds none"


def pytest_configure(config):
    """SIGTERM ends a session as Ctrl-C does, so that fixtures still stop the servers they started."""

    def interrupt(number, frame):
        # timeout(1) sends it to the process and to its group: the second would break the report of what failed.
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def pytest_collection_modifyitems(items):
    # A process that has used the GPU keeps its context, and a timing beside it is refused: those go before the rest.
    items.sort(key=lambda item: item.get_closest_marker("alone") is None)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if marked else ""
    for item in marked:
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
