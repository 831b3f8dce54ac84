"""Jobs in YAML."""
