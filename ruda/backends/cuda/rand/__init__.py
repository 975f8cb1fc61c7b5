"""Random numbers by the vendor's library."""
