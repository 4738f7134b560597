"""All uses of Dagster's private API in this project.

``docs/dagster.md`` lists each, and what breaks without it. The release of Dagster is pinned, and
``test_private_api.py`` checks that other code uses the public API only.
"""
