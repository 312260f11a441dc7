"""Views of a queue: functions from an open transaction to typed records.

Pages and API read the queue through them. They write nothing, and they never decide a round; the
two that do (`explaining`, `comparing`) work in a child process with a time limit.
"""
