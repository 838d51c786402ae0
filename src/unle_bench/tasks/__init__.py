"""Benchmark tasks: each has a prior, a simulator, observations and, but for the pyloric network, exact posterior draws.

Reading order: `task` (what a task is), `official` (files of the public benchmark), `exact_draws` (the tools of exact
posteriors), then one file per task, from `two_moons` to `pyloric`.
"""
