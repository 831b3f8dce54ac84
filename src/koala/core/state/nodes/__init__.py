"""The nodes of the sites: what is free of them now, what will be, and what plans leave of that."""
