"""Jobs as Slurm batch scripts."""
