"""What the core remembers: jobs, sites, queues, transfers and timers, and which of it has changed."""
