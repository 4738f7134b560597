"""What people look at: plots, contact sheets, the data-set report."""
