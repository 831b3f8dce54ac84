"""Files that callers register, send and read: the replica catalogue, contents that travel, outputs."""
