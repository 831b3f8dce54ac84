"""Files that callers register, send and read: the replica catalogue, travelling contents, outputs."""
