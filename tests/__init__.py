"""The test suite, a package so that modules of it can share helpers by name."""
