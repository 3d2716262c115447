"""Sessions of two devices: what the secret comparison and the link score share.

| module | what it provides |
|---|---|
| `party` | one end of a session: turns, message numbers, check, closing on any error |
| `lookup_parties` | the two ends of a session of table look-ups: keys, nonces, the opening |
| `lookup` | the oblivious table look-up itself |
| `message_list` | one message of the public list, and the sizes of its parts |
| `transcript_check` | the check byte, and the code words of an answer |
| `errors` | what can go wrong in a session |
| `pairs` | pairs of devices from the view of a shard, and the count of what they reveal |
| `party_batch` | the parties of a shard, moved through one batch message by message |
| `workers`, `worker_processes` | they hold the parties, in this process or spread over the cores |

The protocols on top are `lumos.twoparty.comparison` and `lumos.twoparty.score`.
"""
