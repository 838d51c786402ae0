"""Figures of the paper and the results page: a results file in, pictures and pages out.

Reading order: `figures` (one function per figure), `density_figures` and `pyloric_figures` (the longer ones), `gallery`
(the page of `unle paper`), `results_page` (docs/results.md).
"""
