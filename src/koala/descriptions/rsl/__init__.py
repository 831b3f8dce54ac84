"""Jobs in Globus RSL."""
