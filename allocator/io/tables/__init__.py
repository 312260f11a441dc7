"""Tables of text: CSV files, numbers, limits on what is read, private folders."""
