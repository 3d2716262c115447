"""What notebooks show of results: fragments of HTML that `lumos.display` names."""
