"""The calibration of execution times: real solvers, measured."""
