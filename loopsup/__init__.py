"""loopsup keeps a coding-agent CLI on one objective. Importing it gives a version and nothing else."""

__version__ = "0.1.0"
