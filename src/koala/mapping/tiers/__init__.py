"""Wide-area grids of the kind that the generator Tiers makes, with loads that vary like measured ones."""
