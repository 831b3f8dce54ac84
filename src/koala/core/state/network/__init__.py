"""What is on the links between sites, what was measured of them and of jobs, and the files on their way."""
