"""The commands of the command line, one file per verb; `unle.cli` puts them together.

Commands parse, call and print; the mathematics is elsewhere. Heavy imports stay inside functions: `unle --help` must
not wait for a compiler.
"""
