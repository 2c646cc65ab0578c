"""HTTP for a program that answers questions about itself: who may ask, over what, and what becomes of bad requests.

`server.Server` listens, `guard.Guard` says who may ask, `certificate.Certificate` is for TLS, `local_token` for people
on the same machine. What is answered is the caller's.
"""
