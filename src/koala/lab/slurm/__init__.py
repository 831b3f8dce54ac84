"""The Slurm clusters of a lab, and the munged by which they know their users."""
