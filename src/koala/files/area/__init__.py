"""A site's file area: where replicas and the copies for jobs are, on this machine or at a site."""
