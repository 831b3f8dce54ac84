"""Commands become deeds: the worker of each site, transfers, barriers and the relay of MPI start-up."""
