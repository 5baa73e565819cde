"""Blocking files: the state home, session folders, ownership, journal, event log, configuration.

Standard library and tomli-w only; no asyncio, no clock. Everything is private (0700, 0600) and nothing is
written through a symlink another user could have placed. Errors are one sentence (`loopsup.errors`).
"""
