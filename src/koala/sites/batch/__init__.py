"""Sites under a batch system: Slurm, Grid Engine."""
