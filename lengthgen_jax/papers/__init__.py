"""The papers' tables and those beyond them: runs, archived rows, pages."""
