"""The sh scripts that run at a batch site, how their answers are framed, and how they are run."""
