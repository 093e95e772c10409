"""OnceKey on real servers: each is started as its users start it, and spoken to by raw sockets."""
