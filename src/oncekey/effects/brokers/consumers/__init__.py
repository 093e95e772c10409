"""Ready consumers: from receiving a message, through the inbox, to its acknowledgement after the commit.

Each broker has a file, which only translates. What all of them do alike is in life.py (begin, work, lose the broker,
try again, stop) and in pulling.py (receive, handle, settle).
"""
