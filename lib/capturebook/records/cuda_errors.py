"""CUDA's error codes, names and texts, and the code behind an exception's message.

Numbers, names and texts are those of cudaGetErrorName and cudaGetErrorString (CUDA 13; a test compares them with
libcudart where one is installed). The driver's cuGetErrorString, which Triton prints, says the same for all of these.
"""

import re

CUDA_ERRORS: dict[int, tuple[str, str]] = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    3: ("cudaErrorInitializationError", "initialization error"),
    9: ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
    34: ("cudaErrorStubLibrary", "CUDA driver is a stub library"),
    35: ("cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"),
    46: ("cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"),
    98: ("cudaErrorInvalidDeviceFunction", "invalid device function"),
    100: ("cudaErrorNoDevice", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    201: ("cudaErrorDeviceUninitialized", "invalid device context"),
    209: ("cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"),
    214: ("cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"),
    218: ("cudaErrorInvalidPtx", "a PTX JIT compilation failed"),
    222: ("cudaErrorUnsupportedPtxVersion", "the provided PTX was compiled with an unsupported toolchain."),
    304: ("cudaErrorOperatingSystem", "OS call failed or operation not supported on this OS"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    401: ("cudaErrorIllegalState", "the operation cannot be performed in the present state"),
    500: ("cudaErrorSymbolNotFound", "named symbol not found"),
    600: ("cudaErrorNotReady", "device not ready"),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    701: ("cudaErrorLaunchOutOfResources", "too many resources requested for launch"),
    702: ("cudaErrorLaunchTimeout", "the launch timed out and was terminated"),
    709: ("cudaErrorContextIsDestroyed", "context is destroyed"),
    710: ("cudaErrorAssert", "device-side assert triggered"),
    714: ("cudaErrorHardwareStackError", "hardware stack error"),
    715: ("cudaErrorIllegalInstruction", "an illegal instruction was encountered"),
    716: ("cudaErrorMisalignedAddress", "misaligned address"),
    717: ("cudaErrorInvalidAddressSpace", "operation not supported on global/shared address space"),
    718: ("cudaErrorInvalidPc", "invalid program counter"),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure"),
    720: ("cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"),
    800: ("cudaErrorNotPermitted", "operation not permitted"),
    801: ("cudaErrorNotSupported", "operation not supported"),
    802: ("cudaErrorSystemNotReady", "system not yet initialized"),
    803: ("cudaErrorSystemDriverMismatch", "system has unsupported display driver / cuda driver combination"),
    900: ("cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
    901: ("cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"),
    902: ("cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"),
    903: ("cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"),
    904: ("cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"),
    905: ("cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"),
    906: (
        "cudaErrorStreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream",
    ),
    907: ("cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"),
    908: (
        "cudaErrorStreamCaptureWrongThread",
        "attempt to terminate a thread-local capture sequence from another thread",
    ),
    909: ("cudaErrorTimeout", "wait operation timed out"),
    910: (
        "cudaErrorGraphExecUpdateFailure",
        "the graph update was not performed because it included changes which violated constraints specific to "
        "instantiated graph update",
    ),
    912: ("cudaErrorInvalidClusterSize", "a kernel launch error has occurred due to cluster misconfiguration"),
    999: ("cudaErrorUnknown", "unknown error"),
}

CODES: dict[str, int] = {name: code for code, (name, _) in CUDA_ERRORS.items()}
"""Code by CUDA's name."""

_NAME = re.compile(r"cudaError[A-Z]\w+")
_PREFIX = re.compile(r"(?:CUDA error: |Triton Error \[CUDA\]: |CUDA driver error: )([^\n]+)")
_TEXTS = sorted(((text, code) for code, (_, text) in CUDA_ERRORS.items()), key=lambda pair: -len(pair[0]))


def name_of(code: int) -> str | None:
    """CUDA's name of a code, None for a code that the table lacks."""
    return CUDA_ERRORS[code][0] if code in CUDA_ERRORS else None


def code_of(text: str) -> tuple[int, str] | None:
    """(code, name) of the CUDA error that an exception's message reports, None if it reports none.

    In this order: CUDA's name (torch prints "Search for `cudaErrorX'"), CUDA's text after torch's or Triton's
    prefix, torch's "CUDA out of memory", and the texts of the capture errors (900-908) anywhere: those are long and
    distinct, while "invalid argument" or "operation not permitted" alone may come from anything.
    """
    for found in _NAME.findall(text):
        if found in CODES:
            return CODES[found], found
    prefixed = _PREFIX.search(text)
    if prefixed:
        said = prefixed.group(1).strip()
        for known, code in _TEXTS:
            if said.startswith(known):
                return code, CUDA_ERRORS[code][0]
    if text.startswith("CUDA out of memory"):
        return 2, CUDA_ERRORS[2][0]
    for code in range(900, 909):
        if CUDA_ERRORS[code][1] in text:
            return code, CUDA_ERRORS[code][0]
    return None
