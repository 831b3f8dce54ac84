"""The simulated world around a scheduler: sites, their users, links, transfers, faults and virtual time."""
