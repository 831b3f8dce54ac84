"""The shell scripts for component directories at a batch site, and how they are run."""
