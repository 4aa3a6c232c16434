"""The tables of the papers and our own: their runs, archived rows and pages."""
