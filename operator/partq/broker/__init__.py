"""The aiohttp server that owns partitions: publish, flows, admin."""
