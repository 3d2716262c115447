"""Real devices: one process each, with certificates of one authority, over a NATS server.

`federation_authority` is the folder that signs `certificates`, `certificate_request` what a device
sends to it. `identity` is a party's own folder, `directory` the public keys of all parties.
`broker_config` and `broker` are the NATS server, `connection` is a party's way to it.
"""
