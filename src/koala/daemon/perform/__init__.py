"""Performs the core's commands: a worker for each site, transfers, barriers and the relay of MPI start-up."""
