"""One turn of the daemon's wheel: events in, the core asked, rows and commands on record, and only then acted on."""
