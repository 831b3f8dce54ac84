"""The jobs of a simulation: listed, drawn from generators, or from published models."""
