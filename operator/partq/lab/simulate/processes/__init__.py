"""The simulated processes: brokers, coordinators, consumers, producers, administrators."""
