"""The pyloric network: a simulator of three neurons, its statistics, and an observation of a living one."""
