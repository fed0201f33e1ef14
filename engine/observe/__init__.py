"""What the instance says about itself: records, journal of rooms, metrics, supervised threads."""
