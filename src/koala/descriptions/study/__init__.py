"""Study files: policies, grids, jobs and seeds to compare, and what is expected of them."""
