"""Real instances, alone and in pairs, behind the real router: what a user would have."""
