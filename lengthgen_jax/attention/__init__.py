"""This package computes attention with an additive bias.

kernel.py is attention itself; normalizers, temperatures, lines and the
calibration of lines have a file each, biases and position encodings a folder.
"""
