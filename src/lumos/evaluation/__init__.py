"""Several runs on one graph: `lumos evaluate` compares systems, `lumos train --seeds` repeats one.

pool       a process for each run, and results that were computed before
evaluate   `lumos.evaluate`, and `lumos train --seeds`
result     the systems that can be compared, means over seeds, and the result
page       its table and its page
"""
