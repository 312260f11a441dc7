"""Tables and pictures of measurements, made from their CSV files alone."""
