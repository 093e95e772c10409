"""The command line: a skin on oncekey.operations. Tables for people, JSON for machines."""
