"""`python -m unle.cli`: the same as `unle`."""

from unle.cli import main

main()
