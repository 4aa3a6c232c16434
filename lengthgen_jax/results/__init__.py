"""Result rows: their fields and files; tables, figures and pages of them."""
