"""The daemon's periodic work: polling the sites, removing expired data, pruning the journal."""
