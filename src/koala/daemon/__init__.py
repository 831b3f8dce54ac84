"""Driver two: the daemon that turns the core with wall time, real sites and a durable store."""
