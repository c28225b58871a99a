"""CUDA's error table against libcudart, and codes read from messages as torch 2.11 and Triton 3.6 print them."""

import ctypes
import glob
import site

import pytest

from capturebook.records.cuda_errors import CODES, CUDA_ERRORS, code_of, name_of
from capturebook.records.settings import settings_in


def _libcudart():
    for folder in site.getsitepackages():
        for path in glob.glob(f"{folder}/nvidia/*/lib/libcudart.so*"):
            return ctypes.CDLL(path)
    pytest.skip("no libcudart installed beside this Python (a CPU build of torch)")


def test_table_is_what_libcudart_says():
    lib = _libcudart()
    lib.cudaGetErrorName.restype = lib.cudaGetErrorString.restype = ctypes.c_char_p
    said = {c: (lib.cudaGetErrorName(c).decode(), lib.cudaGetErrorString(c).decode()) for c in CUDA_ERRORS}
    assert said == CUDA_ERRORS


def test_names_are_distinct():
    assert len(CODES) == len(CUDA_ERRORS)
    assert CODES["cudaErrorStreamCaptureIsolation"] == 905
    assert name_of(905) == "cudaErrorStreamCaptureIsolation"
    assert name_of(12345) is None


@pytest.mark.parametrize(
    "text, code",
    [
        ("CUDA error: operation not permitted when stream is capturing\nSearch for `cudaErrorStreamCapture", 900),
        ("CUDA error: operation not permitted\nCUDA kernel errors might be", 800),
        ("Triton Error [CUDA]: operation not permitted when stream is capturing", 900),
        ("Triton Error [CUDA]: an illegal memory access was encountered", 700),
        ("CUDA error: dependency created on uncaptured work in another stream", 905),
        ("wrapped by someone: capturing stream has unjoined work (see log)", 904),
        ("CUDA error: some text of a newer CUDA\nSearch for `cudaErrorStreamCaptureImplicit' in https://x", 906),
        ("CUDA error: operation not permitted on an event last recorded in a capturing stream", 907),
        ("CUDA error: invalid argument", 1),
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", 2),
    ],
)
def test_code_of(text, code):
    assert code_of(text) == (code, CUDA_ERRORS[code][0])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "invalid argument: batch must be positive",
        "operation not permitted",
        "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "CUDA error: a text nobody knows",
        "cudaErrorOfMyOwn",
    ],
)
def test_no_code_in_other_messages(text):
    assert code_of(text) is None


def test_settings():
    env = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "TORCHINDUCTOR_CUDAGRAPHS": "0", "CUDA_LAUNCH_BLOCKING": ""}
    assert settings_in(env) == {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
