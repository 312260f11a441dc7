"""Reports of measurements: tables and pictures, made from their CSV files alone."""
