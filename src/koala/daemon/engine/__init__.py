"""The daemon's main loop: events go into the core, rows and commands go on record, and only then are they
performed."""
