"""The local judge for the GPU MODE NVFP4 GEMV contest."""
