"""What ships with Koala to be tried and copied: grids, workloads and jobs as files, and parallel applications."""
