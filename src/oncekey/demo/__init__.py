"""A payments API to try it all on: five dialects in front of one simulated provider. docs/demo.md is its contract."""
