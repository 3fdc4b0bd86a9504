"""Learners, one per forecast profile: a mixed action from what was learned, and what is proven of it. Pure."""
