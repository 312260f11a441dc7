"""Views of a queue: functions from an open transaction to typed records.

Pages and API read the queue through them. They write nothing, and they never decide a round;
those of `advice`, which do, work in a child process with a time limit.
"""
