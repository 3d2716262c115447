"""The strict profile: one randomized label per device, noisy sums, and secret scores.

A run is a list of stages (`stages`; those of the tasks are in `classify.stages` and `link.stages`).
`trainer` goes through them on a shard, and `sums` has the masked sums with noise and the
coordinator. `messages` has the messages to neighbours, `features` the local scaling of features,
`accounting` the charges of a run (`lumos.ldp.account` keeps them), and each task its
`guarantees`. Unprotected messages (the door `open`) are disabled.
"""
