"""Real devices: one process each, with certificates of one authority, over a NATS server.

`certificates` has what is signed, `federation_authority` the folder that signs, `certificate_request`
what a device sends to it; `identity` is a party's own folder, `directory` the public keys of all
others, `sealing` both together. `broker_config` and `broker` are the NATS server, `connection` a
party's way to it.
"""
