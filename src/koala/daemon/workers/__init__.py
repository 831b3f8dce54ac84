"""Long computations in processes of their own: the pool that the daemon asks, and what such a process does."""
