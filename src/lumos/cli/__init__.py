"""One thin command per job; all of them share the contract in `common`."""
