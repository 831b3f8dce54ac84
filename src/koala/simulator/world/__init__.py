"""The simulated world that a scheduler meets: sites, their users, links, transfers, faults and virtual time."""
