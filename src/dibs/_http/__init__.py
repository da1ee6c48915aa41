"""The HTTP engine: which requests are guarded, under which key, and how duplicates are answered.

It does no I/O. Frameworks are adapted to it in `dibs.integrations`.
"""
