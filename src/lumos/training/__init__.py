"""What all profiles share.

`profile` and `trainer` are the protocols of a profile and of its programs, `profiles` the registry,
`config` and `settings` the settings of a run. `split` decides who trains, `private_data` is what
the devices of a shard own, `strangers` draws negative samples, `adam` is the optimiser, `metrics`
are the observer's scores, `outcome` is the result of a trained federation.
"""
