"""The Slurm clusters of a lab, and the munged that authenticates their users."""
