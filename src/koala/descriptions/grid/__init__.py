"""Grid files in YAML."""
