"""Real devices: one process each, with certificates of one authority, over a NATS server.

`federation_authority` is the folder that signs `certificates`, `certificate_request` what a device
sends to it. `identity` is a party's own folder, `directory` the public keys of all parties.
`broker_config` and `broker_process` are the NATS server, `connection` is a party's way to it.

`device_folder` and `coordinator_folder` are what a party keeps on its disk to survive a restart,
made of a `snapshot_file` and logs (`record_log`). `party_folder` is what it is handed before.

`device_party` and `coordinator_party` are the parties without any input or output; `nats_link`
moves their packets, `party_process` is their loop, `device_process` and `coordinator_process` are
whole processes. `federation_layout`, `forked_devices` and `local_federation` are a federation on
one machine.
"""
