"""Result rows: schema and files; tables, figures and reports made of them."""
