"""Jobs of tasks: the code for them alone."""
