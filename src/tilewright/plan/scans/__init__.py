"""Scans one after another: stripes of an axis along which none of them runs."""
