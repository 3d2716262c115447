"""The paper's profile: what the paper sends, counted, with a plain account of what it exposes.

`trainer` has the programs of a shard and of the coordinator, the model and a description of what
was given away; `messages` lists every message and exchanges features, `tasks` has the losses.
"""
