"""Training on servers that may be revoked."""
