"""Orders of the queue: who comes first among waiting jobs of one priority."""
