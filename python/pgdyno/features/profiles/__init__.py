"""CPU profiles of the server, compared by function and stack."""
