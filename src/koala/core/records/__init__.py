"""What a driver keeps of the core: one record for each job, claim, transfer, site, queue and measurement."""
