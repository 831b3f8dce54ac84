"""How the bytes of a file get to a site: resumed, verified, and shared by all jobs that need them."""
