"""Runs that failed: whose fault that is, and where the job does not go again for a while."""
