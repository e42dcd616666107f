"""Modules for many devices: the program of one device is made of them, rewritten like any other, and put back."""
