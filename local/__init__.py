"""What the judge does beyond the contest's bot, where nvfp4 is installed.

It explains wrong results, clocks calls behind a gate of its own, and counts what emulated kernels
do. The bot gets the files that task.yml names and none of these; eval.py and worker.py add them
where they are there. Modules here import the judge's flat modules, never the other way round.
"""
