"""`python -m unle`: the same as `unle`."""

from unle.cli import main

main()
