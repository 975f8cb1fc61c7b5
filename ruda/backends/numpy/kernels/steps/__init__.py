"""Compiled steps as tables of tasks, which two and more threads work through without Python."""
