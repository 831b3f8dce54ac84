"""Orders of the queue: the ranking of waiting jobs of one priority."""
