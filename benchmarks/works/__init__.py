"""What the CPU rows time, in processes of their own: nothing here is imported with the rows."""
