"""Worked examples: whole services to read, run and break."""
