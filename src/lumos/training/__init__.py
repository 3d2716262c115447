"""What every profile stands on.

`profile` and `trainer` are the protocols of a profile and of its programs, `profiles` the registry,
`config` and `settings` what can be chosen. `split` decides who trains, `private_data` hands every
shard what its devices own, `strangers` draws negative samples, `adam` is the optimiser, `metrics`
are the observer's scores, `outcome` is what a trained federation leaves.
"""
