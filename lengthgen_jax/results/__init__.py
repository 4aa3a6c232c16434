"""Result rows: their vocabulary, their file, what they say as text, reports."""
