"""Task graphs and the wide-area grids that they are mapped onto, in YAML."""
