"""A trained model of one seed: its answers, and what is measured of them."""
