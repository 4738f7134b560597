"""Fixtures for all tests."""

from interleaved_assets_tests.s3 import bucket, s3_environment, s3_server

__all__ = ["bucket", "s3_environment", "s3_server"]
