"""The local judge for the GPU MODE NVFP4 GEMV contest."""

__version__ = "0.1.0"
