"""Protocols of two devices: secret comparisons and link scores.

| module | what it provides |
|---|---|
| `lookup` | the oblivious table look-up |
| `session` | one end of a session: turns, message numbers, check, closing on any error |
| `comparison` | the secret comparison of two numbers, over bytes |
| `score` | the level of a dot product, over bytes, and its backends in rounds |
| `comparer` | the backends of comparisons in rounds: `secure` and `ideal` |
| `workers` | the parties of many sessions, in this process or spread over the cores |

`lumos.errors` has what can go wrong.
"""
