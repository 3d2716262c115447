"""Every evaluation figure of the paper: planned, run cell by cell, and laid beside its numbers.

The order of the modules is the order of the work: `reported` has the paper's numbers, `settings`
the frozen settings, `dataset` a graph, `cell` one run and its key, `cache` the results so far,
`scheduler` the processes that run the rest, `worker` what such a process does, `structure` the
trees and `cost` the simulated epoch, `figures` the rows of every figure, `tables`, `plots` and
`page` what people see, and `reproduce` all of it in a row.
"""
