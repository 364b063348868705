"""The facts that the scheduler's log and the followed logs record, and the fold that keeps them."""
