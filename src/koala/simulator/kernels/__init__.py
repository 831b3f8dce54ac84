"""Compiled simulations for millions of jobs: plain functions that run as Python and under numba alike."""
