"""Studies: policies with the same jobs on the same grids under the same seeds, judged by confidence intervals.

``read_study`` reads a study file, ``run_study`` runs it to a report. Both serve the command line too.
"""

from koala.experiments.frame.whole_run import WholeRun
from koala.experiments.study.study import Study, read_study, run_study

__all__ = ["Study", "WholeRun", "read_study", "run_study"]
