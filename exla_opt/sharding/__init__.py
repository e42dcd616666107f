"""Modules for many devices: extracts the local program of one device, which is rewritten, and puts it back."""
