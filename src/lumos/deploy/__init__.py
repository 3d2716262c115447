"""Real devices: a process each, over a NATS server, with certificates of one authority.

In the order in which to read: `protocol` has the participants without I/O; `state` what they keep
on their disks; `identity` their names, keys and certificates, `pki` the authority that issues them,
`broker` the NATS server, `nats` the link over it; `plan` what participants are handed before a run;
`questions` what devices answer after it; `processes` runs one participant, `local_federation` all
of them on one machine; `status` and `status_page` say how a run goes on.
"""
