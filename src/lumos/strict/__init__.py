"""The strict profile: one randomized label per device, sums, and secret scores. `open` is shut.

`trainer` is the program of a shard, `classify_trainer` and `link_trainer` its two tasks,
`noisy_sums` its sums. `coordinator` adds up, `topics` lists every message beside those of masked
sums, products and scores. `schedule` (`classify_schedule`, `link_schedule`) has the stages and the
noise of every sum, `classify_promises` and `link_promises` the tables of guarantees, `release_book`
what devices have told in their lives (`book_file` is its file; parts: `label_record`,
`run_charges`, `answer_record`; `book_charges` has the limits, `disclosed` what a table prints).

The rest are the parts that are learnt or sent. Labels: `own_classifier`, `neighbour_evidence`,
`opinions`, `trust`, `residual_head`, `vote`. Links: `matching` finds partners, `word_rows` and
`link_encoder` embed words, `surroundings` has colours and opinions on them, `link_levels` turns
vectors into levels and says what a level means, `answer_budget` and `link_answers` let devices ask,
`link_prediction` asks after training.
"""
