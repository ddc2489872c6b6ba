"""What runs: threads, registers, memory and barriers. Nothing here knows an instruction."""
