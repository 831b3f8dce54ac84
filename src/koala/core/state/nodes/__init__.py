"""The nodes of the sites: their free resources now and later, and what plans leave."""
