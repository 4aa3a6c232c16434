"""Result rows: their schema and files, and tables, figures and reports of them."""
