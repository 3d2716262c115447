"""The paper's profile: what the paper sends, counted, with a plain account of what it exposes.

`trainer` is the program of a shard: `feature_exchange` releases and recovers features,
`network_and_head` runs on trees, `tasks` has the losses. `coordinator` adds updates up, `topics`
lists every message, and `exposure` describes what was given away.
"""
