"""The papers' tables and those beyond them: runs, kept rows and pages."""
