"""A program with a screen of its own under the supervisor: the pseudo-terminal, the picture, who watches and types.

For adapters of terminal programs, at the level of `loopsup.process`. Only `picture` needs the package pyte.
"""
