"""The strict profile: one randomized symbol per device, and sums. The door `open` is shut.

`trainer` is the program of a shard, `classify_trainer` and `link_trainer` its two tasks,
`noisy_sums` its sums. `coordinator` adds up, `topics` lists every message beside those of masked
sums. `schedule` has the stages and the noise of every sum, `promises` the table of guarantees,
`release_book` the releases of earlier runs (parts: `label_record`, `run_charges`). `relay`
sends symbols, `answer_samples` and `pair_exchange` exchange samples of them. The rest are the parts
that are learnt: `own_classifier`, `codebook`, `neighbour_evidence`, `residual_head` for labels;
`similarity`, `score_models`, `pair_scorer`, `link_choice` for links.
"""
