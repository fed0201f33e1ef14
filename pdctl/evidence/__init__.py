"""What is known of one incident: immutable, typed, each fact with the place it was read from."""
