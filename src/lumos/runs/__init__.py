"""A run from beginning to end: `train` is `lumos.train`, `run` the finished `lumos.Run`.

`federation` places a profile's programs on shards and a transport, `loop` trains them with
checkpoints, `folder` keeps a run on disk in the form that `schema` declares, `predict` answers
questions to a finished run and `text` describes it.
"""
