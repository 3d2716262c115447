"""Every evaluation figure of the paper: planned, run cell by cell, and laid beside its numbers.

The order of the modules is the order of the work: `lumos.paper` has the paper's numbers,
`settings` the frozen settings, `subject` a graph, `cell` one run and its key, `store` what was
computed before, `pool` the processes that run the rest, `work` what such a process does,
`structure` the trees and `cost` the simulated epoch, `figures` the rows of every figure, `tables`,
`plots` and `page` what people see, and `reproduce` all of it in a row.
"""
