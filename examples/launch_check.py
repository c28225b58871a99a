"""What `capturebook launch examples/launch_check.yaml --host H` runs there: which interpreter and packages H has."""

import importlib.util
import platform
import sys

print("python", platform.python_version(), "on", platform.machine())
for name in ("torch", "triton", "sglang", "vllm", "transformers"):
    found = importlib.util.find_spec(name) is not None
    print(name, "is here" if found else "is not here")
print(f"RESULT {sys.argv[1]}")
