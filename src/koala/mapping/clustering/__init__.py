"""Step 1 of WASE: which tasks of an application belong together."""
