"""Result rows, their files, and tables, figures and pages of them."""
