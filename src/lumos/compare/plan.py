"""temporary until the protocol's own lengths are there"""
OPENING = 48
RECEIVER_NONCE = 16


def messages(bits: int, ways: int) -> tuple[tuple[bool, int], ...]:
    """(sent by S?, length) of each message after the opening one."""
    digits = -(-bits // 4)
    table = -(-(2 ** min(bits, 12)) // 8) * (ways - 1)
    return ((False, 32 * digits), (True, table), (False, 1))
