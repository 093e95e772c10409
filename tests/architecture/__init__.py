"""What test_architecture.py holds: the rules as tables, and the checks that read a source tree."""
