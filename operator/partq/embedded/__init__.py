"""The whole system on one machine: Redis, brokers and coordinator as child processes."""
