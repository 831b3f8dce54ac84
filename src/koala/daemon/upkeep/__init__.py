"""What the daemon does from time to time: poll the sites, remove what is no longer kept, prune the journal."""
