"""What commands share: options, printing, completion, the browser."""
