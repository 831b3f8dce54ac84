"""The study of mini-grids: bandwidth-aware meta-schedulers."""
