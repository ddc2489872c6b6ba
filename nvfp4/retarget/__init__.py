"""PTX of one architecture on another GPU: rewritten instruction by instruction, then run.

    from nvfp4.retarget.rewrite import rewrite

    rewritten = rewrite(ptx, "sm_90a")
    rewritten.ptx, rewritten.entries()

The rewritten text gives the same bits; what the target cannot do is refused by name. The emulator
is the yardstick: tests run each row of the table through it, before and after.
"""
