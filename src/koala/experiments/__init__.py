"""The papers' experiments on the real scheduler in the simulated world, and the frame that runs and reports them.

What an experiment is stands in ``experiment``; ``catalogue`` knows them by name; ``running`` computes, ``statistics``
and ``claims`` judge, ``figures`` and ``report`` show. Each experiment is a module of its own, or a few with its name.
"""
