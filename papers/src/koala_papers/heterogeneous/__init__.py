"""The study of grids whose links and sites differ."""
