"""Policies for jobs of communicating tasks: WASE."""
