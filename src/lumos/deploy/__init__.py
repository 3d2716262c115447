"""Real devices: a process each, over a NATS server, with certificates of one authority.

In the order in which to read: `protocol` has the participants without I/O, `state` their files on
disk; `identity` has names, keys and certificates, `pki` the authority that issues them, `broker`
the NATS server, `nats` the link over it; `plan` has the files that participants get before a run,
`questions` the answers of devices after it; `processes` runs one participant, `local_federation`
all of them on one machine; `status` publishes the status of a run.
"""
