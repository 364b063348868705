"""One module per domain, named after it (a hyphen as an underscore), with its `DOMAIN`."""
