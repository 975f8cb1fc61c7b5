"""Matrix products by the vendor's libraries."""
