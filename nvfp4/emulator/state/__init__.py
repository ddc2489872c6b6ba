"""Threads, registers, memory and barriers, independent of any instruction."""
