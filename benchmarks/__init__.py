"""Every figure we quote: one command each, ratios of two things measured in turn."""
