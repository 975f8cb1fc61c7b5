"""The operator table, one file per family."""
