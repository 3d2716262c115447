"""Ranks: the processes of one run, on one machine or several. Each hosts one shard."""
