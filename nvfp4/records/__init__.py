"""Typed records that processes exchange. They import only the standard library."""
