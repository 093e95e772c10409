"""Measures OnceKey beside naive code and beside its peers: `make bench`, docs/benchmarks.md."""
