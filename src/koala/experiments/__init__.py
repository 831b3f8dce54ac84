"""The papers' experiments on the real scheduler in the simulated world, and the frame that runs and reports them.

``catalogue`` knows the experiments by name, and each study has a folder. ``frame`` is what they share: ``experiment``
says what an experiment is, ``run`` computes, ``statistics`` and ``claims`` judge, ``figures`` and ``report`` show.
"""
