"""Translation only: each file turns one framework's request into ours and our answers back."""
