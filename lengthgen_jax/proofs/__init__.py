"""A checker that proves models right at every length, and a search for inputs
on which they are wrong."""
