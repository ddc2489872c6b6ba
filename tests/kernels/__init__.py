"""GEMVs in CuTe DSL to start from: each file is one idea and a complete submission."""
