"""The state of the core: jobs, sites, queues, transfers and timers, and what has changed in it."""
