"""Step 1 of WASE: the clustering of an application's tasks."""
