"""What stands between a model's stream and whoever reads it."""
