"""The papers' tables and those beyond them: runs, the archive of their rows, pages."""
