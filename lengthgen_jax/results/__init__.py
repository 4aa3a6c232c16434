"""This package has result rows, their files, and tables, figures and pages of
them."""
