"""Equal bins: every element of a device goes to exactly one of its receivers."""

import numpy as np

from lumos.typing import Ints, Words


def spread(words: Words, receivers: Ints) -> tuple[Ints, Ints]:
    """Spread d elements over ρ receivers at random, sizes equal to within one.

    The elements are put in random order and dealt in turn; a random receiver is the first.

    Args:
        words: [devices, d + 1] uniform 32-bit words from the sender's private coins.
        receivers: [devices] ρ ≥ 1.

    Returns:
        [devices, d] elements by bin, increasing within a bin, and [Σρ] sizes of the bins, device
        by device.
    """
    devices, width = words.shape[0], words.shape[1] - 1
    elements = np.arange(width, dtype=np.uint64)
    # A key is a word and its element, so equal words sort alike on any machine.
    keys = (words[:, :width].astype(np.uint64) << np.uint64(32)) | elements
    keys.sort(axis=1)
    shuffled = keys & np.uint64(0xFFFFFFFF)
    first = words[:, width].astype(np.uint64) % receivers.astype(np.uint64)
    bin_of = (elements + first[:, None]) % receivers.astype(np.uint64)[:, None]
    keys = (bin_of << np.uint64(32)) | shuffled
    keys.sort(axis=1)
    by_bin = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)

    device = np.repeat(np.arange(devices), receivers)
    start = np.cumsum(receivers) - receivers
    turn = np.arange(len(device)) - start[device]
    # The bin that is dealt first, and those after it, get the elements that are left over.
    after_first = (turn - first.astype(np.int64)[device]) % receivers[device]
    sizes = width // receivers[device] + (after_first < width % receivers[device])
    return by_bin, sizes
