"""GEMVs in CuTe DSL, each a submission of its own, that the emulator must run rightly."""
