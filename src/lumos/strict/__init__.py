"""The strict profile: one randomized label per device, noisy sums, and secret scores.

A run is a list of stages (`stages`; `classify.stages` and `link.stages` have those of the tasks).
`trainer` goes through them on a shard, `coordinator` adds up, `sums` are masked sums with noise,
`messages` what neighbours send, `features` what devices do with their features at home.
`accounting` has what a run costs a device, `book` what devices have told in their lives, and each
task its `guarantees`. The door `open` is shut.
"""
