"""The registry of profiles: the only place, beside their own folders, that knows their names."""

PAPER, STRICT = "paper", "strict"
