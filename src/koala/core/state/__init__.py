"""What the core remembers: jobs, sites, queues, transfers and timers, and all of it as one snapshot."""
