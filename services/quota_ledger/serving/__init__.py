"""What the leading ledger answers over HTTP: upstream's views of quotas."""
