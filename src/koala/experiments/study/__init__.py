"""Studies of anybody's: policies x grids x workloads and traces x seeds, as a file says, judged by the frame.

``read_study`` reads a study file, ``run_study`` runs it to a report. Both serve the command line too.
"""

from koala.experiments.study.study import Study, read_study, run_study

__all__ = ["Study", "read_study", "run_study"]
