"""Tensor parallel: which rank holds what, and the collectives among the ranks of an instance."""
