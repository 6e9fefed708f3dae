"""Between the sockets and Flask: what a slow or hostile peer may hold, and for how long. No thread waits for a peer."""
