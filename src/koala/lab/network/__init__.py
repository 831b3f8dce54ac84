"""The network of a lab: a namespace for each site, and the emulated wide area between them."""
