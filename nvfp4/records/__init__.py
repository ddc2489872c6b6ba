"""Typed records that processes exchange. Imports the standard library alone."""
