"""Wide-area grids as the generator Tiers makes them, with loads that change as measured ones do."""
