"""What several measures need and is a subject of its own."""
