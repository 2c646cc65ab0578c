"""The HTTP server of both programs: who may ask, over what, and how bad requests are answered.

`server.Server` listens, `guard.Guard` says who may ask, `certificate.Certificate` is for TLS, `local_token` for people
on the same machine. What is answered is the caller's.
"""
