"""Every evaluation figure of the paper: planned, run cell by cell, and laid beside its numbers.

The modules in the order of the work:

    reported        the paper's numbers
    settings        the frozen settings of the evaluation
    dataset         a graph
    cell, versions  one run; the version of its result
    cache           results that were computed before
    figures/        rows, plots and cells of every figure
    request, plan   what to reproduce; every cell with its result or its job
    scheduler       the processes that run jobs
    worker          what such a process does
    structure       figures of trees
    device_model, epoch_cost    simulated time of an epoch
    reproduction, sentences, row_tables, ledger_section, evaluation_page, output    what is shown
    reproduce       all of it
"""
