"""The strict profile: one randomized symbol per device, and sums. The door `open` is shut."""
