"""Web archives: pages to documents of texts and images."""
