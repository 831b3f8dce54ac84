"""The traffic on the links between sites, the measurements of links and jobs, and the files on their way."""
