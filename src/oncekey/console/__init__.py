"""A web page for the people who run it: look at operations, settle what is unknown. A skin on oncekey.operations."""

from oncekey.console.app import Console

__all__ = ["Console"]
