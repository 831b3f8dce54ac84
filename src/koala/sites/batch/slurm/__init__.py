"""Slurm as a batch system: the scripts that use its commands, and the parsers of what they print."""
