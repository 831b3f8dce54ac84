"""Jobs of tasks: what is theirs alone."""
