"""The shell scripts for component directories at a batch site, and the runner of these scripts."""
