"""Configs: every check of a field, what is built from them, configs on disk."""
