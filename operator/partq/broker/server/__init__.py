"""HTTP around the routes: declarations of calls, tokens, errors, sockets, forwarding."""
