"""Double-entry accounting: events as postings that sum to zero, the balances, and their verification."""
