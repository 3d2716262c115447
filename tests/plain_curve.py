"""edwards25519 and CRC-8 in plain integers, sharing no code with the protocols."""

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P


def recover(y):
    ratio = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(ratio, (P + 3) // 8, P)
    if (x * x - ratio) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    return x if x % 2 == 0 else P - x


BASE = (recover(4 * pow(5, -1, P) % P), 4 * pow(5, -1, P) % P)


def plus(left, right):
    (x1, y1), (x2, y2) = left, right
    both = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + both, -1, P) % P
    return x, (y1 * y2 + x1 * x2) * pow(1 - both, -1, P) % P


def times(scalar, point):
    total = (0, 1)
    while scalar:
        if scalar & 1:
            total = plus(total, point)
        point = plus(point, point)
        scalar >>= 1
    return total


def encode(point):
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def crc(data):
    state = 0
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state << 1 ^ 0x107 if state & 0x80 else state << 1) & 0xFF
    return state
