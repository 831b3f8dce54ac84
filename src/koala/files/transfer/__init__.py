"""How the bytes of a file get to a site: resumed, verified, shared by all who need them."""
