"""HTTP without a framework: what is read from a request, what is kept of an answer, what a client is told."""
