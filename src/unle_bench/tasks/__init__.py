"""The benchmark's tasks, one file each."""
