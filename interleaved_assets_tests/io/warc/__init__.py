"""Tests of web archives."""
