"""Code that all profiles share.

`profile` and `trainer` are the protocols of a profile and of its programs, `config` has the
settings of a run, `problem` what a federation learns from and the private data of its devices.
`split` draws splits and `given_split` reads them, `write_parts` writes a graph in parts, `adam` is
the optimiser, `metrics` are the scores of the observer.
"""
