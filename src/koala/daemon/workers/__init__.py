"""Long computations in separate processes: the pool that the daemon calls, and the code of such a process."""
