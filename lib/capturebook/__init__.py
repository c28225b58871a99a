"""capturebook: does a GPU kernel or decode step survive CUDA graph capture, torch.compile, and both together?"""

__version__ = "0.1.0"
