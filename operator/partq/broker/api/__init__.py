"""The broker over HTTP: its application, declarations of calls, tokens, errors, forwarding."""
