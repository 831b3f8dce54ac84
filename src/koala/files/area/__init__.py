"""A site's file area: the place of replicas and of copies for jobs, on this machine or at a site."""
