"""Commands that fit and use speed, price and revocation models."""
