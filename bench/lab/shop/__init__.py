"""A made-up project, and what a user and an agent say and do in it: the stuff of sessions.

Nothing here knows of messages, ids or times.
"""
