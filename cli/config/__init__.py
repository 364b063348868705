"""`koord config`: configuration files, before they are applied."""
