"""A shop over three shards, for the tests of Django."""
