"""The rules: values in, decisions out. No I/O, no clock, no randomness, no logging."""
