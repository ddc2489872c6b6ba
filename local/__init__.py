"""What the judge does beyond the contest's bot, where nvfp4 is installed.

It explains wrong results, runs cases again in a fresh process, clocks calls behind a gate of its
own, counts what emulated kernels do, and keeps files out of a submission's reach. The bot gets the
files that task.yml names and none of these; eval.py and worker.py add them where they are there.
Modules here import the judge's flat modules, never the other way round.
"""
