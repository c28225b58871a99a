"""Kernels the workbook examines. Imports nothing else of capturebook; importing a kernel package imports torch."""
