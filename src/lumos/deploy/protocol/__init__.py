"""The protocol of real devices, without I/O: frames, mailboxes, rounds, and the participants."""
