"""Storms of faults around the scheduler, and the named promises that it keeps in them."""
