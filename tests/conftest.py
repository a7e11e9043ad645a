"""Settings of the tools that every test shares; fixtures live beside the tests that use them."""

import os

from hypothesis import settings

# Machines that share their cores are slow now and then; a slow example is no failure.
settings.register_profile("partq", deadline=None, print_blob=True)
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "partq"))
