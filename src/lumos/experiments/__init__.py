"""Experiments of many runs: every figure of the paper, and several systems on one graph.

`lumos reproduce` plans cells, runs them and lays them beside the paper's numbers. The modules in
the order of the work:

    reported        the paper's numbers
    settings        the frozen settings of the evaluation
    dataset         a graph
    cell, versions  one run; the version of its result
    cache           results that were computed before
    figures/        rows, plots and cells of every figure
    request, plan   what to reproduce; every cell with its result or its job
    job, scheduler  what a process computes; the processes that run jobs
    worker          what such a process does
    structure       figures of trees
    device_model, epoch_cost    simulated time of an epoch
    reproduction, sentences, row_tables, ledger_section, evaluation_page, output    what is shown
    reproduce       all of it

`lumos evaluate` compares systems on one graph of the user's, by the same processes and cells:

    evaluated_systems, expected_need    which systems, and what their runs need
    mean_score, protection              means over seeds; the whole promise in a line
    comparison, score_table, comparison_page    the result, and what is shown
    evaluate                            all of it
    seeded_runs                         `lumos train --seeds`
"""
