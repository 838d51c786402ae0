"""A sweep: every combination of task, method, budget, seed and observation becomes one row of a results file.

Reading order: `sweep` (what is to be run, and one job of it), `run_sweep` (all jobs) with `process_pool`, `scoring`
(C2ST and other measures), `batched_runs` (several seeds as one program of an accelerator), `pictures` (arrays that
figures need), `origin` (which code and machine made a row).
"""
