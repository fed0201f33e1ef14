"""The pictures of the README, and the command that draws them."""
