"""Several runs on one graph: `lumos evaluate` compares systems, `lumos train --seeds` repeats one.

evaluated_systems   the systems that can be compared, and the runs behind them
process_pool        a process for each run
cache               results that were computed before
evaluate            all of it; `result`, `table` and `evaluation_page` are what is shown
seeds               `lumos train --seeds`
means               means over seeds, and of paired differences
"""
