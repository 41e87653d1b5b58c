"""Changes in the results of a repeated study."""
