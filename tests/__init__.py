"""All tests. A package, so that helpers are imported as tests.infra and the like, from anywhere."""
