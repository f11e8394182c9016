"""The kinds of placement, one a file or two."""
