"""Training over trees: splits, releases, POOL and links over the exchange, updates, runs.

The order in which things happen: `split` decides who trains; `home` hands every shard what its
devices own; `worker` is the program of a shard: `features` releases and recovers, `lumos.model`
runs on trees, `tasks` has the losses, `adam` the step. `fit` trains one model over a carrier, with
checkpoints in a `folder`; `job` is `lumos.train`; `predict` uses what it made; `exposure` says what
was given away. The programs of the strict profile are in `lumos.strict`.
"""
