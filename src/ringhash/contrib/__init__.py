"""Plugs into other libraries. Each module needs the extra of its name: `pip install 'ringhash[redis]'`."""
