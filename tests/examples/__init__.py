"""The worked examples, run as their readers would run them, and worse."""
